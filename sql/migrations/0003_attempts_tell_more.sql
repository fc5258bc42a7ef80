-- What a page said besides its rows: how many of them contradicted each other, and the addresses it was reached by.
alter table scrape.attempts
    add column collisions integer not null default 0,
    add column redirects text[] not null default '{}';

-- Pages that name other pages: what a retailer's pages are is found while it is collected.
-- `discovers`: the page gives addresses, not rows. `depth`: how many pages away from the first one. `barren`: how many
-- pages in a row, up to this one's parent, named nothing new. `of_pages`: N, where it is page 1, 2 or so of N. `problem`: why what it named cannot be all of it.
alter table scrape.tasks
    add column discovers boolean not null default false,
    add column depth integer not null default 0,
    add column barren integer not null default 0,
    add column of_pages integer not null default 0,
    add column problem text;

-- Found, and not yet a task: no origin has more open tasks than it is allowed.
create table scrape.frontier (
    task_key          uuid primary key,
    run_id            text not null,
    retailer          text not null,
    context           text not null,
    page_type         text not null,
    discovers         boolean not null,
    url               text not null,
    canonical_url     text not null,
    origin            text not null,
    entity            text,
    priority          integer not null,
    depth             integer not null,
    barren            integer not null,
    of_pages          integer not null default 0,
    max_attempts      integer not null,
    generation        integer not null,
    recovery_batch_id uuid,
    found_at          timestamptz not null default clock_timestamp(),
    foreign key (run_id, retailer) references scrape.run_partitions
);

create index frontier_of_origin on scrape.frontier (run_id, retailer, origin, discovers desc, found_at);

-- Which page named which: written with the commit of the page that names. Not `current`: it did when it was read before.
create table scrape.links (
    run_id     text not null,
    retailer   text not null,
    parent_key uuid not null,
    child_key  uuid not null,
    position   integer not null,
    current    boolean not null default true,
    primary key (run_id, parent_key, child_key),
    foreign key (run_id, retailer) references scrape.run_partitions
);

create index links_of_child on scrape.links (run_id, child_key);

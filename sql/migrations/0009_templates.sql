-- What the page of an attempt was laid out like: 64 hexadecimal digits that differ little between pages of one template.
-- Only of pages that give rows, or should: null for lists, refusals and what came in the way, and for what is no markup.
alter table scrape.attempts add column template text;

-- A person has seen that the pages are laid out as never before, and let the retailer go on.
alter table scrape.run_partitions add column template_overruled boolean not null default false;

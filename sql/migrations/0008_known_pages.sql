-- What is known of a page from window to window: the bytes it last had, by what the site tells whether they are still
-- its own, since when they are, and when that was last seen.
create table scrape.pages (
    page_key      uuid primary key,
    run_id        text not null,
    sha256        text not null,
    etag          text,
    last_modified text,
    changed_at    timestamptz not null,
    verified_at   timestamptz not null
);

-- When the site says that the page was last changed; null where nobody says, or nobody believes it.
alter table scrape.tasks add column modified_at timestamptz;
alter table scrape.frontier add column modified_at timestamptz;

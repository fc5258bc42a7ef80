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

-- The page in whatever window it is read; null where nothing is known by it. `pages_of` says what one dataset asks one
-- retailer for; no control character is in any of the four.
create function scrape.page_key(pages_of text, context text, page_type text, canonical_url text) returns uuid
language sql stable as $$
    select left(encode(sha256(convert_to(pages_of || E'\n' || context || E'\n' || page_type || E'\n' || canonical_url, 'UTF8')), 'hex'), 32)::uuid
$$;

-- When the site says that the page was last changed; null where nobody says, or nobody believes it.
alter table scrape.tasks add column modified_at timestamptz;
alter table scrape.frontier add column modified_at timestamptz;

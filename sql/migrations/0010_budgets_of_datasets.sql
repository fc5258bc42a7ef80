-- What each dataset declares for an origin: what the strictest of them allows holds. One that was not planned for a
-- month does not bind any more.
create table scrape.origin_budgets (
    origin               text not null,
    dataset_id           text not null,
    interval_seconds     double precision not null,
    concurrency          integer not null,
    gap_through_response boolean not null,
    per_day              integer,
    calm_seconds         double precision not null,
    obeys_robots         boolean not null,
    declared_at          timestamptz not null default clock_timestamp(),
    primary key (origin, dataset_id)
);

-- One budget per origin, over all workers, retailers, runs and machines.
-- `gap_through_response`: the gap counts from the end of an answer. `calm_seconds`: after a pause, the time in which
-- one level of `pressure` is forgiven. `failing`: how many first tries failed in a row without reaching the site.
alter table scrape.origins
    add column concurrency integer not null default 8,
    add column gap_through_response boolean not null default false,
    add column per_day integer,
    add column day date,
    add column day_count integer not null default 0,
    add column robots_delay double precision not null default 0,
    add column pressure integer not null default 0,
    add column calm_seconds double precision not null default 30,
    add column failing integer not null default 0;

-- Which of an origin's requests in flight are whose. What a dead worker held is free when its time is over.
create table scrape.origin_shares (
    origin     text not null references scrape.origins,
    worker_id  text not null,
    wanted     integer not null,
    slots      integer not null,
    since      timestamptz not null default clock_timestamp(),
    expires_at timestamptz not null,
    primary key (origin, worker_id),
    constraint slots_not_negative check (slots >= 0 and wanted >= 0)
);

-- What an origin's robots.txt said in this run; asked for once, by whoever made the row. Without a body: on its way.
create table scrape.robots (
    run_id      text not null references scrape.runs,
    origin      text not null,
    fetched_at  timestamptz not null default clock_timestamp(),
    http_status integer,
    body        text,
    note        text,
    primary key (run_id, origin)
);

create index robots_of_origin on scrape.robots (origin, fetched_at desc);

-- How many levels of pressure are left: a level is forgiven for each calm time since the last pause ended.
create function scrape.pressure_left(o scrape.origins) returns integer language sql stable as $$
    select case when o.paused_until is null then 0
                else greatest(0, o.pressure - floor(greatest(0, extract(epoch from clock_timestamp() - o.paused_until))
                                                    / greatest(o.calm_seconds, 0.001))::integer)
           end
$$;

-- Seconds between the starts of two requests: as declared or as robots.txt asks, doubled for each level of pressure,
-- and then at least a tenth of a second so doubled, so that a site comes back to its rate slowly.
create function scrape.gap_seconds(o scrape.origins) returns double precision language sql stable as $$
    select case when p = 0 then g else greatest(g, 0.1) * power(2, p) end
      from (select scrape.pressure_left(o) as p, greatest(o.interval_seconds, o.robots_delay) as g) of
$$;

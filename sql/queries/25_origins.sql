-- name: keep_budgets :none
-- What this dataset declares for each origin. Its row, if there is none, so that it can be locked.
with mine as materialized (
    select name as origin, %(dataset_id)s as dataset_id, %(interval_seconds)s::float8 as interval_seconds,
           %(concurrency)s::integer as concurrency, %(gap_through_response)s::boolean as gap_through_response,
           %(per_day)s::integer as per_day, %(calm_seconds)s::float8 as calm_seconds,
           %(obeys_robots)s::boolean as obeys_robots
      from unnest(%(origins)s::text[]) as name
), known as (
    insert into scrape.origins (origin, interval_seconds, concurrency, gap_through_response, per_day, calm_seconds)
    select origin, interval_seconds, concurrency, gap_through_response, per_day, calm_seconds
      from mine
     order by origin
    on conflict do nothing
)
insert into scrape.origin_budgets as b (origin, dataset_id, interval_seconds, concurrency, gap_through_response,
                                        per_day, calm_seconds, obeys_robots)
select * from mine order by origin
on conflict (origin, dataset_id) do update
   set interval_seconds = excluded.interval_seconds, concurrency = excluded.concurrency,
       gap_through_response = excluded.gap_through_response, per_day = excluded.per_day,
       calm_seconds = excluded.calm_seconds, obeys_robots = excluded.obeys_robots, declared_at = clock_timestamp()
 where b.declared_at < clock_timestamp() - interval '1 hour'
    or (b.interval_seconds, b.concurrency, b.gap_through_response, b.calm_seconds, b.obeys_robots)
       <> (excluded.interval_seconds, excluded.concurrency, excluded.gap_through_response, excluded.calm_seconds,
           excluded.obeys_robots)
    or b.per_day is distinct from excluded.per_day;

-- name: declare_origins :none
-- A declared budget is live: what the strictest dataset declares holds for all workers at once. A pause is left alone,
-- but one for a day's requests that are more now. Comes after `lock_origins`.
with strictest as (
    select b.origin, max(b.interval_seconds) as interval_seconds, min(b.concurrency) as concurrency,
           bool_or(b.gap_through_response) as gap_through_response, min(b.per_day) as per_day,
           max(b.calm_seconds) as calm_seconds, bool_or(b.obeys_robots) as obeys_robots
      from scrape.origin_budgets b
     where b.origin = any(%(origins)s::text[]) and b.declared_at > clock_timestamp() - interval '30 days'
     group by b.origin
)
update scrape.origins o
   set interval_seconds = s.interval_seconds, concurrency = s.concurrency,
       gap_through_response = s.gap_through_response, per_day = s.per_day, calm_seconds = s.calm_seconds,
       robots_delay = case when s.obeys_robots then o.robots_delay else 0 end,
       paused_until = case when not day.is_over then o.paused_until end,
       pause_reason = case when not day.is_over then o.pause_reason end
  from strictest s
 cross join lateral (
       select p.per_day is distinct from s.per_day
              and coalesce(p.pause_reason like 'its %% requests of this day%%', false) as is_over
         from scrape.origins p where p.origin = s.origin) day
 where o.origin = s.origin
   and ((o.interval_seconds, o.concurrency, o.gap_through_response, o.calm_seconds)
        <> (s.interval_seconds, s.concurrency, s.gap_through_response, s.calm_seconds)
        or o.per_day is distinct from s.per_day
        or (o.robots_delay <> 0 and not s.obeys_robots));

-- name: lock_origin :maybe
-- Claims and turns of one origin come one after the other. In a statement of its own, so that whoever waited here sees
-- what was paused, stopped, closed or taken meanwhile.
select origin
  from scrape.origins
 where origin = %(origin)s
   for update;

-- name: lock_origins :many
-- Several of them, always in name order.
select origin
  from scrape.origins
 where origin = any(%(origins)s::text[])
 order by origin
   for update;

-- name: share_origins :many
-- How many requests this worker may have in flight at each origin, of what all workers may have together. A worker
-- that has more than its fair part gives it back as soon as another has less: it may begin no further request above its
-- part (`allowed`), but what it has under way is no one else's (`held`). With more workers than slots, whoever had one
-- for five seconds lets another have it. Comes after `lock_origins`.
with asked as materialized (
    select a.*, o.per_day, o.gap_through_response, scrape.gap_seconds(o) as gap,
           least(o.concurrency, greatest(1, floor(coalesce(
               %(patience_seconds)s::float8 / nullif(scrape.gap_seconds(o), 0), o.concurrency))))::integer as concurrency,
           coalesce(o.paused_until > clock_timestamp(), false) as paused
      from json_to_recordset(%(asked)s::json) as a (origin text, wanted integer, in_use integer)
      join scrape.origins o using (origin)
), others as materialized (
    select a.origin, coalesce(sum(s.slots), 0)::integer as taken, count(s.worker_id)::integer as workers,
           greatest(1, a.concurrency / (1 + count(s.worker_id)::integer)) as fair
      from asked a
      left join scrape.origin_shares s
             on s.origin = a.origin and s.worker_id <> %(worker_id)s and s.wanted > 0
            and s.expires_at > clock_timestamp()
     group by a.origin, a.concurrency
), mine as materialized (
    select a.origin, a.wanted, part.allowed, greatest(part.allowed, least(a.in_use, a.concurrency - o.taken)) as held
      from asked a
      join others o using (origin)
      left join scrape.origin_shares s on s.origin = a.origin and s.worker_id = %(worker_id)s
     cross join lateral (
           select exists (select 1 from scrape.origin_shares x
                           where x.origin = a.origin and x.worker_id <> %(worker_id)s
                             and x.expires_at > clock_timestamp() and x.slots < least(x.wanted, o.fair)) as some) starving
     cross join lateral (
           select greatest(0, least(a.wanted, a.concurrency - o.taken,
                                    case when not starving.some then a.concurrency
                                         when o.workers < a.concurrency or coalesce(s.slots, 0) = 0
                                              or s.since > clock_timestamp() - interval '5 s' then o.fair
                                         else 0
                                    end)) as allowed) part
), kept as (
    insert into scrape.origin_shares as s (origin, worker_id, wanted, slots, expires_at)
    select origin, %(worker_id)s, wanted, held, clock_timestamp() + make_interval(secs => %(seconds)s::float8)
      from mine
     order by origin
    on conflict (origin, worker_id) do update
       set wanted = excluded.wanted, slots = excluded.slots, expires_at = excluded.expires_at,
           since = case when (s.slots = 0) = (excluded.slots = 0) then s.since else clock_timestamp() end
)
select a.origin, m.allowed as slots, a.gap, a.paused,
       a.gap > 0 or a.per_day is not null or a.gap_through_response as paced
  from asked a
  join mine m using (origin);

-- name: leave_origins :none
-- What this worker had in flight is free, and what nobody renewed is forgotten.
delete from scrape.origin_shares
 where worker_id = %(worker_id)s or expires_at < clock_timestamp() - interval '1 hour';

-- name: take_turn :one
-- Some starts in a row are mine, a gap apart, if nobody else's turn is running: none, and in how many seconds to ask
-- again, otherwise. A turn is a fiftieth and two milliseconds longer than its gaps, which is how late its last start
-- may be. With the gap held through the response, one request, and nobody starts until it has ended or timed out.
with asked as materialized (
    select o.*, scrape.gap_seconds(o) as gap, clock_timestamp() as at,
           coalesce(o.per_day - case when o.day = (clock_timestamp() at time zone 'UTC')::date then o.day_count else 0 end,
                    2147483647) as left_today
      from scrape.origins o
     where o.origin = %(origin)s
), granted as materialized (
    select a.*, case when a.paused_until > a.at or a.next_start_at > a.at or a.left_today <= 0 then 0
                     when a.gap_through_response then 1
                     when a.gap = 0 then 1
                     else least(a.left_today, greatest(1, floor(%(turn_seconds)s::float8 / a.gap)))
                end::integer as starts
      from asked a
), taken as (
    update scrape.origins o
       set next_start_at = case when g.gap_through_response then g.at + make_interval(secs => %(hold_seconds)s::float8 + g.gap)
                                when g.gap = 0 then g.next_start_at
                                else g.at + make_interval(secs => g.gap * g.starts * 1.02 + 0.002)
                           end,
           day = (g.at at time zone 'UTC')::date,
           day_count = case when g.per_day is null then 0
                            when o.day = (g.at at time zone 'UTC')::date then o.day_count + g.starts
                            else g.starts
                       end
      from granted g
     where o.origin = g.origin and g.starts > 0
), spent as (
    update scrape.origins o
       set paused_until = date_trunc('day', g.at, 'UTC') + interval '1 day',
           pause_reason = 'its ' || g.per_day || ' requests of this day (UTC) were made'
      from granted g
     where o.origin = g.origin and g.left_today <= 0
)
select g.starts, g.gap,
       case when g.starts > 0 then 0
            when g.left_today <= 0 then 60
            when g.gap_through_response and coalesce(g.paused_until <= g.at, true)
            then least(0.05, extract(epoch from g.next_start_at - g.at))
            else extract(epoch from greatest(g.next_start_at, coalesce(g.paused_until, g.next_start_at)) - g.at)
       end::float8 as wait_seconds,
       coalesce(g.paused_until > g.at, false) or g.left_today <= 0 as paused,
       case when g.gap_through_response then g.at + make_interval(secs => %(hold_seconds)s::float8 + g.gap) end as held_until
  from granted g;

-- name: wait_for_turn :one
select pg_sleep(%(seconds)s::float8) is null as waited;

-- name: push_turn :none
-- A request went out later than its turn allows: the next one starts a whole gap after it.
update scrape.origins o
   set next_start_at = greatest(o.next_start_at, clock_timestamp() + make_interval(secs => scrape.gap_seconds(o)))
 where o.origin = %(origin)s;

-- name: end_turn :none
-- The answer has ended: the gap that is held through it begins now.
update scrape.origins o
   set next_start_at = clock_timestamp() + make_interval(secs => scrape.gap_seconds(o))
 where o.origin = %(origin)s and o.next_start_at = %(held_until)s;

-- name: pause_origin :none
-- No worker starts another request to this origin before then; a longer pause is never shortened. A site that does not
-- say for how long is left alone twice as long each time, until it was calm; first for its calm time, where nobody else
-- says either. What arrives while it is paused was asked
-- before and presses no further.
update scrape.origins o
   set paused_until = greatest(coalesce(o.paused_until, clock_timestamp()),
                               clock_timestamp() + make_interval(secs => least(
                                   %(cap_seconds)s::float8,
                                   coalesce(%(seconds)s::float8, o.calm_seconds)
                                   * case when not %(doubles)s then 1
                                          when o.paused_until > clock_timestamp()
                                          then power(2, greatest(0, o.pressure - 1))
                                          else power(2, scrape.pressure_left(o)) end))),
       pressure = case when o.paused_until > clock_timestamp() then o.pressure
                       else least(6, scrape.pressure_left(o) + 1) end,
       pause_reason = %(reason)s
 where o.origin = %(origin)s;

-- name: note_unreachable :none
-- First tries that reached nothing, in a row: the fifth, or the second while the origin comes back, pauses it, so that
-- an outage of an hour costs a handful of attempts and not every page's.
with counted as materialized (
    select o.origin, o.failing + %(failures)s as failing, scrape.pressure_left(o) as pressure,
           o.failing + %(failures)s >= case when scrape.pressure_left(o) = 0 then 5 else 2 end as enough
      from scrape.origins o
     where o.origin = %(origin)s
       for update
)
update scrape.origins o
   set failing = case when c.enough then 0 else c.failing end,
       paused_until = case when c.enough
                           then greatest(coalesce(o.paused_until, clock_timestamp()),
                                         clock_timestamp() + make_interval(secs => least(
                                             300, %(seconds)s::float8 * power(2, c.pressure))))
                           else o.paused_until end,
       pressure = case when c.enough and o.paused_until is not null and o.paused_until > clock_timestamp() then o.pressure
                       when c.enough then least(6, c.pressure + 1) else o.pressure end,
       pause_reason = case when c.enough then %(reason)s else o.pause_reason end
  from counted c
 where o.origin = c.origin;

-- name: note_reached :none
-- It answers.
update scrape.origins
   set failing = 0
 where origin = any(%(origins)s::text[]) and failing > 0;

-- name: origins_of_partition :one
-- What a retailer's pages are on, those that wait in the frontier included.
select origins
  from scrape.run_partitions
 where run_id = %(run_id)s and retailer = %(retailer)s;

-- name: paused_origins :many
-- Which of these origins are paused now, so that leases on them that have not started are given back.
select origin
  from scrape.origins
 where origin = any(%(origins)s) and paused_until > clock_timestamp();

-- name: ask_robots :maybe
-- Whoever gets a row is the one who asks for it; another one takes over when nothing came of it.
insert into scrape.robots as r (run_id, origin)
values (%(run_id)s, %(origin)s)
on conflict (run_id, origin) do update set fetched_at = clock_timestamp()
 where r.body is null and r.fetched_at < clock_timestamp() - make_interval(secs => %(seconds)s::float8)
returning origin;

-- name: find_robots :maybe
-- What this run read, or else the newest that an earlier run read within these days.
select origin, http_status, body, note, run_id = %(run_id)s as of_this_run
  from scrape.robots
 where origin = %(origin)s and body is not null
   and (run_id = %(run_id)s
        or (fetched_at > clock_timestamp() - make_interval(days => %(days)s::integer) and http_status between 200 and 299))
 order by run_id = %(run_id)s desc, fetched_at desc
 limit 1;

-- name: keep_robots :none
-- Whoever read it first is right for the whole run. That somebody asks may have been forgotten by another asker.
insert into scrape.robots as r (run_id, origin, http_status, body, note)
values (%(run_id)s, %(origin)s, %(http_status)s, %(body)s, %(note)s)
on conflict (run_id, origin) do update
   set http_status = excluded.http_status, body = excluded.body, note = excluded.note, fetched_at = clock_timestamp()
 where r.body is null;

-- name: forget_robots :none
-- Nothing came of it: the next one may ask.
delete from scrape.robots
 where run_id = %(run_id)s and origin = %(origin)s and body is null;

-- name: set_robots_delay :none
update scrape.origins
   set robots_delay = %(seconds)s
 where origin = %(origin)s and robots_delay <> %(seconds)s;

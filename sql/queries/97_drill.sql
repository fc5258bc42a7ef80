-- name: drill_in_flight :many
-- The leases of a run as they stand: what the death of its worker may have to fetch again.
select task_key, url, attempt_id, lease_owner
  from scrape.tasks
 where run_id = %(run_id)s and state = 'leased';

-- name: drill_expired :many
select attempt_id
  from scrape.attempts
 where run_id = %(run_id)s and outcome = 'lease_expired';

-- name: drill_given_up :one
-- How many of these attempts are over, how many of them with a commit, and when the last one was.
select count(*) filter (where outcome <> 'running') as ended,
       count(*) filter (where outcome = 'committed') as committed,
       max(finished_at) as last_at
  from scrape.attempts
 where attempt_id = any(%(attempt_ids)s::uuid[]);

-- name: drill_released :one
-- How many attempts of a run were given back.
select count(*) as released
  from scrape.attempts
 where run_id = %(run_id)s and outcome = 'released';

-- name: drill_committed :one
select count(*) as committed
  from scrape.tasks
 where run_id = %(run_id)s and state = 'committed';

-- name: drill_acknowledged :one
-- How many of the attempts that a worker was told are durable are not; one that was repaired since was.
select count(*) as missing
  from unnest(%(attempt_ids)s::uuid[]) as told (attempt_id)
  left join scrape.attempts a on a.attempt_id = told.attempt_id and a.outcome in ('committed', 'reverted')
 where a.attempt_id is null;

-- name: drill_clock :one
select clock_timestamp() as now;

-- name: count_states :many
select state, count(*) as tasks
  from scrape.tasks
 where run_id = %(run_id)s
 group by state
 order by state;

-- name: hold_origins :none
-- Nobody starts before the drill says so; no site asked for it, so it presses nothing.
update scrape.origins
   set paused_until = clock_timestamp() + make_interval(secs => %(seconds)s::float8), pause_reason = 'the drill begins soon';

-- name: count_workers :one
select count(*) as workers from scrape.origin_shares where slots > 0 and expires_at > clock_timestamp();

-- name: rows_by_sku :many
select payload ->> 'sku' as sku, count(*) as rows
  from scrape.observations
 where run_id = %(run_id)s and validation_state = 'valid'
 group by 1;

-- name: accepted_twice :one
select count(*) as tasks
  from (select task_key from scrape.attempts
         where run_id = %(run_id)s and outcome = 'committed'
         group by task_key having count(*) > 1) t;

-- name: drill_ends :many
-- How each page of a run ended: its attempts in their order, and what it is called where it gave a row.
select t.retailer, t.url, t.state,
       array_agg(coalesce(a.failure_class, a.outcome) order by a.started_at) as attempts,
       (array_agg(a.reason order by a.started_at desc))[1] as reason,
       (select string_agg(o.payload ->> 'name', ', ' order by o.entity_key)
          from scrape.observations o
         where o.run_id = t.run_id and o.source_task_key = t.task_key) as name,
       min(a.started_at) as first_at, max(a.finished_at) as last_at
  from scrape.tasks t
  join scrape.attempts a on a.task_key = t.task_key
 where t.run_id = %(run_id)s
 group by t.run_id, t.task_key
 order by t.retailer, t.url;

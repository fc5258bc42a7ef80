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

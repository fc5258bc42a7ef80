-- name: drill_in_flight :many
-- The leases of a run as they stand: what the death of its worker may have to fetch again.
select task_key, url, attempt_id
  from scrape.tasks
 where run_id = %(run_id)s and state = 'leased';

-- name: drill_progress_after :one
-- Seconds from a moment to the first durable progress of the run after it; null when there was none.
select extract(epoch from min(l.at) - %(since)s::timestamptz)::float8 as seconds
  from scrape.state_log l
 where l.run_id = %(run_id)s and l.at > %(since)s
   and (l.new_state in ('committed', 'candidate', 'accepted', 'published', 'delivered') or l.old_state is null);

-- name: drill_acknowledged :one
-- How many of the attempts that a worker was told are durable are not.
select count(*) as missing
  from unnest(%(attempt_ids)s::uuid[]) as told (attempt_id)
  left join scrape.attempts a on a.attempt_id = told.attempt_id and a.outcome = 'committed'
 where a.attempt_id is null;

-- name: drill_clock :one
select clock_timestamp() as now;

-- name: pause_partition :maybe
-- Nothing further of the partition is claimed. `stopped`: the program did it, and a person is asked.
update scrape.run_partitions
   set paused_at = clock_timestamp(), pause_reason = %(reason)s,
       stopped_at = case when %(stopped)s then clock_timestamp() end
 where run_id = %(run_id)s and retailer = %(retailer)s and paused_at is null
returning retailer;

-- name: stop_changed :maybe
-- A retailer whose pages are laid out as never before waits for a person, as behind a canary that failed. Not where
-- somebody has answered already: let it go on, waived the rule, or repairs it.
update scrape.run_partitions p
   set paused_at = clock_timestamp(), pause_reason = %(reason)s
 where p.run_id = %(run_id)s and p.retailer = %(retailer)s and p.paused_at is null and not p.template_overruled
   and p.recovery_batch_id is null
   and not exists (select from scrape.waivers w
                    where w.run_id = p.run_id and w.retailer = p.retailer and w.rule = 'template'
                      and w.until > clock_timestamp())
returning p.retailer;

-- name: resume_partition :maybe
-- Refusals from before are forgiven, else the next one would stop it again. A canary that failed, or a template that
-- changed, is overruled by whoever resumes: acceptance judges all of it once more.
update scrape.run_partitions
   set paused_at = null, pause_reason = null, stopped_at = null, resumed_at = clock_timestamp(),
       canary = case when canary = 'failed' then 'passed' else canary end,
       template_overruled = template_overruled or pause_reason like 'its template changed:%%'
 where run_id = %(run_id)s and retailer = %(retailer)s and paused_at is not null
returning retailer;

-- name: close_partition :maybe
-- Nothing further of the partition is claimed, for good; what is open is quarantined by the closing step.
update scrape.run_partitions
   set closing_at = coalesce(closing_at, clock_timestamp())
 where run_id = %(run_id)s and retailer = %(retailer)s and planned_at is not null
returning retailer;

-- name: set_deadline :none
-- A live key. A window that is collected late has its time from the moment it was planned, one that is repaired from
-- the moment its repair began.
update scrape.run_partitions p
   set deadline_at = greatest(r.window_end, p.planned_at,
                              (select b.created_at from scrape.recovery_batches b
                                where b.recovery_batch_id = p.recovery_batch_id))
                     + coalesce(make_interval(secs => %(deadline_seconds)s::float8), r.window_end - r.window_start)
  from scrape.runs r
 where p.run_id = %(run_id)s and p.retailer = %(retailer)s and r.run_id = p.run_id;

-- name: close_overdue :many
-- Partitions whose deadline has passed are closed. Skips those that somebody decides about now.
with overdue as materialized (
    select p.run_id, p.retailer
      from scrape.candidates c
      join scrape.run_partitions p using (run_id, retailer)
     where c.state = 'collecting' and p.closing_at is null and p.deadline_at <= (select clock_timestamp())
     order by p.run_id, p.retailer
       for no key update of p skip locked
)
update scrape.run_partitions p
   set closing_at = clock_timestamp()
  from overdue
 where p.run_id = overdue.run_id and p.retailer = overdue.retailer
returning p.run_id, p.retailer;

-- name: lock_ended :many
-- Partitions of which nothing is claimed any more: closed, or stopped and not resumed by anybody within the grace.
select p.run_id, p.retailer,
       case when p.closing_at is not null then 'window_closed' else 'access_refused' end as failure_class
  from scrape.candidates c
  join scrape.run_partitions p using (run_id, retailer)
 where c.state = 'collecting'
   and (p.closing_at is not null
        or p.stopped_at <= (select clock_timestamp()) - make_interval(secs => %(grace_seconds)s::float8))
 order by p.run_id, p.retailer
   for no key update of p skip locked;

-- name: quarantine_unclaimable :one
-- transition: task pending -> quarantined
-- transition: task retry_wait -> quarantined
-- Leased tasks end first, each as its worker, or the reaper, says; what they leave open is found by the next step.
with open as materialized (
    select t.task_key
      from scrape.tasks t
     where t.run_id = %(run_id)s and t.retailer = %(retailer)s and t.state in ('pending', 'retry_wait')
       and (%(failure_class)s = 'window_closed' or t.from_artifact is null)
     limit 10000
       for update of t skip locked
), ended as (
    update scrape.tasks t
       set state = 'quarantined', last_failure_class = %(failure_class)s
      from open
     where t.task_key = open.task_key
    returning t.task_key
)
select count(*) as quarantined from ended;

-- name: count_ended :one
-- How many of the partition ended in this class.
select count(*) as ended
  from scrape.tasks
 where run_id = %(run_id)s and retailer = %(retailer)s
   and state = 'quarantined' and last_failure_class = %(failure_class)s;

-- name: recent_failures :many
-- How the partition's newest attempts ended, newest first; since it was resumed, where it ever was. A first 403, which
-- is tried once more, counts as well: all first tries come before any second, and would all be made before it stops.
select a.outcome, a.failure_class
  from scrape.attempts a
 where a.run_id = %(run_id)s and a.retailer = %(retailer)s and a.finished_at is not null
   and a.finished_at > coalesce((select p.resumed_at from scrape.run_partitions p
                                  where p.run_id = %(run_id)s and p.retailer = %(retailer)s), '-infinity')
   and a.outcome in ('committed', 'retry', 'quarantined', 'gone') and not a.from_artifact
 order by a.finished_at desc
 limit %(at_most)s;

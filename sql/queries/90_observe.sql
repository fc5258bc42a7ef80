-- name: partition_counts :many
-- Per retailer of one run: tasks by state, attempts, rows, pause; what `status` and the Dagster metadata show.
select p.retailer, p.planned_at, p.planned, p.rejected, p.paused_at, p.pause_reason, p.stopped_at,
       p.closing_at, p.deadline_at, coalesce(b.extractor_version, p.extractor_version) as extractor_version,
       p.canary, p.canary_checks, b.recovery_batch_id, b.created_at as recovery_began,
       coalesce(t.pending, 0) as pending, coalesce(t.retry_wait, 0) as retry_wait, coalesce(t.leased, 0) as leased,
       coalesce(t.committed, 0) as committed, coalesce(t.quarantined, 0) as quarantined, coalesce(t.gone, 0) as gone,
       coalesce(t.lists, 0) + coalesce(f.lists, 0) as lists, coalesce(t.lists_read, 0) as lists_read,
       coalesce(t.lists_gone, 0) as lists_gone, t.problem as discovery_problem,
       coalesce(f.waiting, 0) as waiting,
       extract(epoch from clock_timestamp() - t.due_since)::float8 as oldest_due_seconds,
       coalesce(a.attempts, 0) as attempts, coalesce(a.seconds, 0)::float8 as seconds,
       coalesce(o.observations, 0) as observations, c.generation, c.state as candidate_state, c.verdict
  from scrape.run_partitions p
  left join scrape.recovery_batches b using (recovery_batch_id)
  left join lateral (
       select count(*) filter (where state = 'pending') as pending,
              count(*) filter (where state = 'retry_wait') as retry_wait,
              count(*) filter (where state = 'leased') as leased,
              count(*) filter (where state = 'committed') as committed,
              count(*) filter (where state = 'quarantined') as quarantined,
              count(*) filter (where state = 'gone') as gone,
              min(next_attempt_at) filter (where state in ('pending', 'retry_wait') and next_attempt_at <= clock_timestamp())
                  as due_since,
              count(*) filter (where discovers) as lists,
              count(*) filter (where discovers and state = 'committed') as lists_read,
              count(*) filter (where discovers and state = 'gone') as lists_gone, min(problem) as problem
         from scrape.tasks t where t.run_id = p.run_id and t.retailer = p.retailer) t on true
  left join lateral (
       select count(*) as waiting, count(*) filter (where discovers) as lists
         from scrape.frontier f where f.run_id = p.run_id and f.retailer = p.retailer) f on true
  left join lateral (
       select count(*) as attempts, extract(epoch from max(finished_at) - min(started_at)) as seconds
         from scrape.attempts a where a.run_id = p.run_id and a.retailer = p.retailer) a on true
  left join lateral (
       select count(*) as observations
         from scrape.observations o
        where o.run_id = p.run_id and o.retailer = p.retailer and o.validation_state = 'valid') o on true
  left join lateral (
       select generation, state, verdict
         from scrape.candidates c
        where c.run_id = p.run_id and c.retailer = p.retailer
        order by generation desc limit 1) c on true
 where p.run_id = %(run_id)s
 order by p.retailer;

-- name: failure_counts :many
-- Attempts of one run by retailer and class, those that were retried with success included; expired leases too.
select retailer, coalesce(failure_class, outcome) as failure_class, count(*) as attempts,
       count(distinct task_key) as tasks
  from scrape.attempts
 where run_id = %(run_id)s and (failure_class is not null or outcome = 'lease_expired')
 group by retailer, coalesce(failure_class, outcome)
 order by retailer, attempts desc, failure_class;

-- name: pauses_of_run :many
-- Origins of one run that are paused now for all workers.
select o.origin, o.paused_until, o.pause_reason
  from scrape.origins o
 where o.paused_until > clock_timestamp()
   and exists (select from scrape.run_partitions p where p.run_id = %(run_id)s and o.origin = any(p.origins))
 order by o.origin;

-- name: page_state_counts :many
select retailer, page_state, count(*) as attempts
  from scrape.attempts
 where run_id = %(run_id)s and page_state is not null
 group by retailer, page_state
 order by retailer, page_state;

-- name: to_try_again :many
-- Per retailer of one run: how many pages wait to be tried again, when the next is due, what the latest of them met.
select distinct on (t.retailer) t.retailer, count(*) over (partition by t.retailer) as pages,
       min(t.next_attempt_at) over (partition by t.retailer) as next_at,
       coalesce(a.failure_class, t.last_failure_class) as failure_class, a.reason
  from scrape.tasks t
  join scrape.attempts a on a.attempt_id = t.attempt_id
 where t.run_id = %(run_id)s and t.state = 'retry_wait'
 order by t.retailer, a.finished_at desc nulls last;

-- name: leased_elsewhere :many
-- Per retailer of one run: pages that another worker has, and when the last of their leases ends unless it is extended.
select retailer, count(*) as pages, max(lease_until) as until
  from scrape.tasks
 where run_id = %(run_id)s and state = 'leased' and lease_owner <> %(worker)s
 group by retailer
 order by retailer;

-- name: given_up :many
-- Per retailer of one run: why its quarantined pages were given up, the commonest reasons.
select retailer, failure_class, reason, pages
  from (select t.retailer, t.last_failure_class as failure_class, a.reason, count(*) as pages,
               row_number() over (partition by t.retailer order by count(*) desc, t.last_failure_class, a.reason) as place
          from scrape.tasks t
          left join scrape.attempts a on a.attempt_id = t.attempt_id
         where t.run_id = %(run_id)s and t.state = 'quarantined'
         group by t.retailer, t.last_failure_class, a.reason) counted
 where place <= %(most)s
 order by retailer, place;

-- name: failed_tasks :many
-- What ended quarantined or gone, with its last attempt; the list to act on.
select t.retailer, t.url, t.state, t.last_failure_class, t.attempt_count, a.http_status, a.page_state,
       a.failure_class, a.reason, a.final_url, a.artifact_sha256, t.task_key, t.entity, t.page_type, t.context, t.priority
  from scrape.tasks t
  left join scrape.attempts a on a.attempt_id = t.attempt_id
 where t.run_id = %(run_id)s and t.state in ('quarantined', 'gone')
   and (%(retailer)s::text is null or t.retailer = %(retailer)s)
   and (%(failure_class)s::text is null or t.last_failure_class = %(failure_class)s or a.failure_class = %(failure_class)s)
 order by t.retailer, t.last_failure_class, t.url;

-- name: list_runs :many
-- Every run of a dataset, newest window first, with the version that stands.
select r.run_id, r.collection_window, r.window_start, r.window_end, r.created_at,
       (select max(d.dataset_version) from scrape.dataset_candidates d
         where d.run_id = r.run_id and d.state = 'published') as dataset_version
  from scrape.runs r
 where r.dataset_id = %(dataset_id)s
 order by r.window_start desc
 limit %(at_most)s;

-- name: newest_window :maybe
-- The window that a person means who names none: the newest that was planned, or that has a version.
select r.collection_window
  from scrape.runs r
 where r.dataset_id = %(dataset_id)s
   and case when %(published)s
            then exists (select from scrape.dataset_candidates d where d.run_id = r.run_id and d.state = 'published')
            else exists (select from scrape.run_partitions p where p.run_id = r.run_id and p.planned_at is not null)
       end
 order by r.window_start desc
 limit 1;

-- name: open_work :many
-- Partitions with open tasks, for a worker that is told no window: oldest window first.
select p.run_id, p.retailer, r.dataset_id, r.collection_window
  from scrape.run_partitions p
  join scrape.runs r using (run_id)
 where p.planned_at is not null
   and (%(dataset_id)s::text is null or r.dataset_id = %(dataset_id)s)
   and (exists (select 1 from scrape.tasks t
                 where t.run_id = p.run_id and t.retailer = p.retailer
                   and t.state in ('pending', 'retry_wait', 'leased')
                   and (p.paused_at is null or p.closing_at is not null
                        or (t.from_artifact is not null and p.canary <> 'failed')))
        or ((p.paused_at is null or p.closing_at is not null)
            and exists (select 1 from scrape.frontier f where f.run_id = p.run_id and f.retailer = p.retailer)))
 order by r.window_start, p.retailer;

-- name: get_artifact :maybe
-- Where the bytes of one attempt lie.
select segment, segment_offset, length, body_bytes
  from scrape.artifacts
 where run_id = %(run_id)s and sha256 = %(sha256)s;

-- name: stored_pages :many
-- Tasks of one retailer that give rows, and whose last attempt has its bytes stored, in the order of their keys, which are hashes: the
-- first of them are a fair sample.
select t.task_key, t.url, t.canonical_url, t.context, t.entity, t.state, t.last_failure_class, a.page_state, a.reason,
       f.sha256, f.segment, f.segment_offset, f.length
  from scrape.tasks t
  join scrape.attempts a on a.attempt_id = t.attempt_id
  join scrape.artifacts f on f.run_id = t.run_id and f.sha256 = a.artifact_sha256
 where t.run_id = %(run_id)s and t.retailer = %(retailer)s and not t.discovers
   and (%(urls)s::text[] is null or t.canonical_url = any(%(urls)s))
   and (%(context)s::text is null or t.context = %(context)s)
   and (%(sha256)s::text is null or f.sha256 = %(sha256)s)
 order by t.task_key
 limit %(at_most)s;

-- name: urls_in_state :many
-- The pages of a run whose tasks are in one of these states.
select url
  from scrape.tasks
 where run_id = %(run_id)s and state = any(%(states)s);

-- name: page_series :many
-- What the pages of these runs turned out to be, by window, retailer, type, state and template: the last answer of each
-- page that has ended.
select t.run_id, t.retailer, t.page_type, a.page_state, a.failure_class, a.outcome, a.template, count(*) as pages
  from scrape.runs r
  join scrape.tasks t using (run_id)
  left join scrape.attempts a on a.attempt_id = t.attempt_id
 where r.run_id = any(%(run_ids)s::text[]) and (%(retailer)s::text is null or t.retailer = %(retailer)s)
   and t.state in ('committed', 'quarantined', 'gone') and not t.discovers
 group by r.window_start, t.run_id, t.retailer, t.page_type, a.page_state, a.failure_class, a.outcome, a.template
 order by r.window_start desc, t.retailer;

-- name: count_leased :one
-- Nothing of the partition may be under way while a batch takes its tasks.
select count(*) as leased, max(greatest(0, extract(epoch from lease_until - clock_timestamp())))::float8 as free_in_seconds
  from scrape.tasks
 where run_id = %(run_id)s and retailer = %(retailer)s and state = 'leased';

-- name: select_tasks :many
-- Tasks that have ended, by what a person may name of them, with the failure of their last attempt and where its bytes
-- lie. What is not named is not asked for.
select t.task_key, t.url, t.canonical_url, t.context, t.entity, t.page_type, t.discovers, t.state, t.last_failure_class, a.failure_class,
       a.page_state, t.problem, a.extractor_version, f.sha256, f.segment, f.segment_offset, f.length
  from scrape.tasks t
  left join scrape.attempts a on a.attempt_id = t.attempt_id
  left join scrape.artifacts f on f.run_id = t.run_id and f.sha256 = a.artifact_sha256
 where t.run_id = %(run_id)s and t.retailer = %(retailer)s and t.state in ('committed', 'quarantined', 'gone')
   and (%(page_type)s::text is null or t.page_type = %(page_type)s)
   and (%(failure_class)s::text is null or t.state <> 'committed'
        and (t.last_failure_class = %(failure_class)s or a.failure_class = %(failure_class)s))
   and (%(urls)s::text[] is null or t.canonical_url = any(%(urls)s))
 order by t.task_key;

-- name: count_joining :one
-- Open tasks that a batch would take along, and those of them that wait for their stored page.
select count(*) as joined, count(*) filter (where from_artifact is not null) as stored
  from scrape.tasks
 where run_id = %(run_id)s and retailer = %(retailer)s and state in ('pending', 'retry_wait', 'leased');

-- name: has_other_extractor :one
-- Whether rows of the partition were read by another extractor than this: it was repaired in part.
select exists (select from scrape.observations
                where run_id = %(run_id)s and retailer = %(retailer)s and validation_state = 'valid'
                  and extractor_version <> %(extractor_version)s) as other;

-- name: open_batch :none
insert into scrape.recovery_batches (recovery_batch_id, run_id, retailer, generation, manifest, manifest_hash,
                                     extractor_version, page_sources, selection, selected)
values (%(recovery_batch_id)s, %(run_id)s, %(retailer)s, %(generation)s, %(manifest)s, %(manifest_hash)s,
        %(extractor_version)s, %(page_sources)s, %(selection)s, %(selected)s);

-- name: replace_candidate :maybe
-- transition: candidate candidate -> replaced
-- transition: candidate accepted -> replaced
-- transition: candidate rejected -> replaced
-- The next generation follows; its verdict stays to be read.
update scrape.candidates
   set state = 'replaced'
 where run_id = %(run_id)s and retailer = %(retailer)s and generation = %(generation)s
   and state in ('candidate', 'accepted', 'rejected')
returning generation;

-- name: open_generation :none
-- transition: candidate - -> collecting
insert into scrape.candidates (run_id, retailer, generation)
values (%(run_id)s, %(retailer)s, %(generation)s);

-- name: take_tasks :many
-- transition: task committed -> pending
-- transition: task quarantined -> pending
-- transition: task gone -> pending
-- transition: task retry_wait -> pending
-- transition: task pending -> pending
-- The selected ones, and every open one of the partition, under the batch: a new budget, deliberately. An open one that
-- waits for its stored page still reads that, unless the site is to be asked for everything.
with taken as materialized (
    select t.task_key, t.state, s.sha256, s.task_key is not null as selected
      from scrape.tasks t
      left join json_to_recordset(%(selected)s::json) as s (task_key uuid, sha256 text) using (task_key)
     where t.run_id = %(run_id)s and t.retailer = %(retailer)s
       and (t.state in ('pending', 'retry_wait') or (s.task_key is not null and t.state in ('committed', 'quarantined', 'gone')))
     order by t.task_key
       for update of t
), reopened as (
    update scrape.tasks t
       set state = 'pending', attempt_count = 0, release_count = 0, rate_limited_count = 0,
           budget_base_token = t.lease_token, next_attempt_at = clock_timestamp(), rows_committed = null,
           problem = null,
           max_attempts = %(max_attempts)s, generation = %(generation)s, recovery_batch_id = %(recovery_batch_id)s,
           from_artifact = case when taken.selected then taken.sha256 when %(refetch)s then null else t.from_artifact end
      from taken
     where t.task_key = taken.task_key
    returning t.task_key, t.attempt_id, t.from_artifact
)
select reopened.task_key, reopened.attempt_id, reopened.from_artifact is not null as stored, taken.state
  from reopened join taken using (task_key);

-- name: revert_attempts :none
update scrape.attempts
   set outcome = 'reverted'
 where attempt_id = any(%(attempt_ids)s::uuid[]) and outcome = 'committed';

-- name: revert_lost :none
-- Rows of reverted tasks that had not won their key.
with mine as materialized (
    select observation_key, source_task_key
      from scrape.observation_collisions
     where source_task_key = any(%(task_keys)s::uuid[])
     order by observation_key, source_task_key
       for update
)
update scrape.observation_collisions c
   set validation_state = 'reverted'
  from mine
 where c.observation_key = mine.observation_key and c.source_task_key = mine.source_task_key;

-- name: revert_observations :many
with mine as materialized (
    select observation_key
      from scrape.observations
     where source_task_key = any(%(task_keys)s::uuid[])
     order by observation_key
       for update
)
update scrape.observations o
   set validation_state = 'reverted'
  from mine
 where o.observation_key = mine.observation_key
returning o.observation_key;

-- name: promote_over_reverted :none
-- Where another task's valid row had lost against one that is reverted now, it takes its place; the reverted one is
-- kept as the collision, by the trigger.
with best as materialized (
    select distinct on (c.observation_key) c.*
      from scrape.observation_collisions c
     where c.observation_key = any(%(observation_keys)s::uuid[]) and c.validation_state = 'valid'
     order by c.observation_key, c.observed_at desc, c.generation desc, c.lease_token desc, c.source_task_key desc
), taken as (
    delete from scrape.observation_collisions c
     using best
     where c.observation_key = best.observation_key and c.source_task_key = best.source_task_key
    returning c.*
)
update scrape.observations o
   set run_id = taken.run_id, retailer = taken.retailer, context = taken.context, entity_key = taken.entity_key,
       source_task_key = taken.source_task_key, attempt_id = taken.attempt_id, generation = taken.generation,
       lease_token = taken.lease_token, validation_state = 'valid', observed_at = taken.observed_at,
       payload = taken.payload, payload_hash = taken.payload_hash, sources = taken.sources,
       extractor_version = taken.extractor_version
  from taken
 where o.observation_key = taken.observation_key;

-- name: enter_batch :none
-- The partition works under the batch from now on: open again, under its own deadline, its canary to be judged anew. A
-- retailer that refused us stays stopped until a person resumes it, within a grace that begins anew; one that only its
-- canary or its template stopped goes on.
update scrape.run_partitions
   set recovery_batch_id = %(recovery_batch_id)s, closing_at = null,
       paused_at = case when pause_reason similar to '(its canary of|its template changed:) %%' then null else paused_at end,
       pause_reason = case when pause_reason similar to '(its canary of|its template changed:) %%' then null else pause_reason end,
       stopped_at = case when stopped_at is not null then clock_timestamp() end,
       canary = case when canary in ('failed', 'running') then %(canary)s else 'none' end, canary_checks = null
 where run_id = %(run_id)s and retailer = %(retailer)s;

-- name: join_frontier :none
-- What waits for room belongs to the batch too, as all open tasks do.
update scrape.frontier
   set recovery_batch_id = %(recovery_batch_id)s, generation = %(generation)s
 where run_id = %(run_id)s and retailer = %(retailer)s;

-- name: close_batch :none
-- How many it took besides those that were selected, and how many of all read stored pages.
update scrape.recovery_batches
   set joined = %(joined)s, from_artifacts = %(from_artifacts)s
 where recovery_batch_id = %(recovery_batch_id)s;

-- name: content_hashes :many
-- Every partition of a run by the hash over its valid rows: what a repair of one of them must leave alone.
select p.retailer, count(o.observation_key) as rows,
       encode(sha256(convert_to(coalesce(
           string_agg(o.observation_key::text || ':' || o.payload_hash, e'\n' order by o.observation_key), ''), 'UTF8')), 'hex')
         as content_hash
  from scrape.run_partitions p
  left join scrape.observations o on o.run_id = p.run_id and o.retailer = p.retailer and o.validation_state = 'valid'
 where p.run_id = %(run_id)s
 group by p.retailer
 order by p.retailer;

-- name: rows_of_tasks :many
-- What these tasks say now, or said until they were reverted.
select source_task_key as task_key, entity_key, payload
  from scrape.observations
 where source_task_key = any(%(task_keys)s::uuid[])
 order by source_task_key, observation_key;

-- name: batch_progress :one
-- What a batch came to: tasks by how they ended, stored pages that could not be read, and attempts that asked the site.
select count(*) filter (where t.state = 'committed') as committed, count(*) filter (where t.state = 'gone') as gone,
       count(*) filter (where t.state = 'quarantined') as quarantined,
       count(*) filter (where t.state in ('pending', 'retry_wait', 'leased')) as open,
       (select b.from_artifacts from scrape.recovery_batches b where b.recovery_batch_id = %(recovery_batch_id)s)
       - count(*) filter (where t.from_artifact is not null) as unreadable,
       (select count(*) from scrape.attempts a
         where a.recovery_batch_id = %(recovery_batch_id)s and not a.from_artifact) as requests
  from scrape.tasks t
 where t.recovery_batch_id = %(recovery_batch_id)s;

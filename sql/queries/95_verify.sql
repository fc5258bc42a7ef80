-- Every invariant returns the keys that violate it; healthy means no row. The first comment line is the sentence
-- that `verify` prints. All of them may run while workers are at work.

-- name: invariant_one_committed_attempt :many
-- A committed task has exactly one committed attempt, and that attempt holds its current token.
select t.task_key::text as key
  from scrape.tasks t
  left join scrape.attempts a on a.task_key = t.task_key and a.outcome = 'committed'
 group by t.task_key, t.state, t.lease_token
having count(a.attempt_id) <> (t.state = 'committed')::integer
    or (t.state = 'committed' and max(a.lease_token) <> t.lease_token);

-- name: invariant_observation_has_its_attempt :many
-- Every valid observation comes from the committed attempt of a committed task of the same run.
select o.observation_key::text as key
  from scrape.observations o
  left join scrape.attempts a on a.attempt_id = o.attempt_id
  left join scrape.tasks t on t.task_key = o.source_task_key
 where o.validation_state = 'valid'
   and (a.outcome is distinct from 'committed' or a.task_key <> o.source_task_key
        or t.state <> 'committed' or t.run_id <> o.run_id);

-- name: invariant_one_row_per_entity :many
-- No two valid observations describe one entity in one context of one run.
select run_id || ' ' || entity_key || ' ' || context as key
  from scrape.observations
 where validation_state = 'valid'
 group by run_id, entity_key, context
having count(*) > 1;

-- name: invariant_committed_rows_are_there :many
-- A committed task has the rows it counted: its own observations, or collisions that another task's newer row won.
select t.task_key::text as key
  from scrape.tasks t
  left join (select source_task_key, count(*) as n from scrape.observations group by 1) o on o.source_task_key = t.task_key
  left join (select source_task_key, count(*) as n from scrape.observation_collisions group by 1) c
         on c.source_task_key = t.task_key
 where t.state = 'committed' and coalesce(o.n, 0) + coalesce(c.n, 0) <> t.rows_committed;

-- name: invariant_attempts_are_counted :many
-- Attempts spent are the claims of this budget less the refunds, and never over the budget.
select task_key::text as key
  from scrape.tasks
 where attempt_count <> lease_token - budget_base_token - release_count or attempt_count > max_attempts;

-- name: invariant_extractor_is_frozen :many
-- A committed attempt outside of a recovery extracted with the version that its retailer was planned with.
select a.attempt_id::text as key
  from scrape.attempts a
  join scrape.run_partitions p using (run_id, retailer)
 where a.outcome = 'committed' and a.recovery_batch_id is null and a.extractor_version <> p.extractor_version;

-- name: invariant_one_attempt_per_token :many
-- Every token ever issued has its attempt row, without a gap.
select t.task_key::text as key
  from scrape.tasks t
  left join scrape.attempts a using (task_key)
 group by t.task_key, t.lease_token
having count(a.attempt_id) <> t.lease_token or coalesce(max(a.lease_token), 0) <> t.lease_token;

-- name: invariant_running_is_leased :many
-- An attempt is running exactly while its task is leased with its token.
select a.attempt_id::text as key
  from scrape.attempts a
  join scrape.tasks t using (task_key)
 where (a.outcome = 'running')
    <> (t.state = 'leased' and t.lease_token = a.lease_token and t.attempt_id = a.attempt_id);

-- name: invariant_no_lease_outlives_its_deadline :many
-- A heartbeat never carries a lease past its task's deadline.
select task_key::text as key
  from scrape.tasks
 where state = 'leased' and lease_until > deadline_at;

-- name: invariant_exhausted_is_closed :many
-- A task without budget is not waiting for a claim that can never come.
select task_key::text as key
  from scrape.tasks
 where state in ('pending', 'retry_wait') and attempt_count >= max_attempts;

-- name: invariant_only_legal_moves :many
-- Every logged task move is one that the state machine allows.
select id::text as key
  from scrape.state_log
 where kind = 'task'
   and (coalesce(old_state, '-'), new_state) not in (
       ('-', 'pending'), ('pending', 'leased'), ('retry_wait', 'leased'), ('leased', 'pending'),
       ('leased', 'retry_wait'), ('leased', 'committed'), ('leased', 'quarantined'), ('leased', 'gone'),
       ('pending', 'quarantined'), ('retry_wait', 'quarantined'));

-- name: invariant_tokens_rise :many
-- A task's fencing token rises with every claim.
select key
  from (select key, token, lag(token) over (partition by key order by id) as before
          from scrape.state_log
         where kind = 'task' and new_state = 'leased') as claims
 where token <= before;

-- name: invariant_no_task_lost :many
-- As many tasks as were ever planned, in the log and in the partition's count.
select p.run_id || ' ' || p.retailer as key
  from scrape.run_partitions p
  left join (select run_id, retailer, count(*) as n from scrape.tasks group by 1, 2) t using (run_id, retailer)
 where p.planned <> coalesce(t.n, 0)
union all
select r.run_id
  from scrape.runs r
  left join (select run_id, count(*) as n from scrape.tasks group by 1) t using (run_id)
  left join (select run_id, count(distinct key) as n from scrape.state_log where kind = 'task' and old_state is null group by 1) l
         using (run_id)
 where coalesce(t.n, 0) <> coalesce(l.n, 0);

-- name: invariant_closed_has_no_open_task :many
-- A retailer that is past collecting has no open task and a finished plan.
select c.run_id || ' ' || c.retailer as key
  from scrape.candidates c
  join scrape.run_partitions p using (run_id, retailer)
 where c.state <> 'collecting'
   and (p.planned_at is null
        or exists (select 1 from scrape.tasks t
                    where t.run_id = c.run_id and t.retailer = c.retailer
                      and t.state in ('pending', 'retry_wait', 'leased')));

-- name: invariant_accepted_content_stands :many
-- The rows of an accepted retailer are still those that were judged.
select c.run_id || ' ' || c.retailer as key
  from scrape.candidates c
  left join lateral (
       select encode(sha256(convert_to(coalesce(
                  string_agg(o.observation_key::text || ':' || o.payload_hash, e'\n' order by o.observation_key), ''),
                  'UTF8')), 'hex') as content_hash
         from scrape.observations o
        where o.run_id = c.run_id and o.retailer = c.retailer and o.validation_state = 'valid') h on true
 where c.state = 'accepted' and c.content_hash <> h.content_hash;

-- name: invariant_published_was_accepted :many
-- A published version consists of exactly its members' accepted content.
select d.run_id || ' v' || d.dataset_version as key
  from scrape.dataset_candidates d
 cross join lateral jsonb_to_recordset(d.members) as m (retailer text, generation integer, content_hash text)
  left join lateral (
       select encode(sha256(convert_to(coalesce(
                  string_agg(p.observation_key::text || ':' || p.payload_hash, e'\n' order by p.observation_key), ''),
                  'UTF8')), 'hex') as content_hash
         from scrape.published_observations p
        where p.run_id = d.run_id and p.dataset_version = d.dataset_version and p.retailer = m.retailer) h on true
 where d.state = 'published' and m.content_hash <> h.content_hash
 union
select p.run_id || ' v' || p.dataset_version
  from (select distinct run_id, dataset_version, retailer from scrape.published_observations) p
 where not exists (
       select from scrape.dataset_candidates d, jsonb_to_recordset(d.members) as m (retailer text)
        where d.run_id = p.run_id and d.dataset_version = p.dataset_version and d.state = 'published'
          and m.retailer = p.retailer);

-- name: invariant_one_event_per_version :many
-- Each published version has exactly one outbox event, and no event lacks its version.
select coalesce(d.run_id || ' v' || d.dataset_version, e.event_id::text) as key
  from (select run_id, dataset_version from scrape.dataset_candidates where state = 'published') d
  full join (select event_id, run_id, (payload ->> 'dataset_version')::integer as dataset_version
               from scrape.outbox where event_type = 'dataset.published') e
         on e.run_id = d.run_id and e.dataset_version = d.dataset_version
 where d.run_id is null or e.run_id is null;

-- name: invariant_versions_are_gapless :many
-- Versions of a run's window count 1, 2, 3 without a gap.
select run_id as key
  from scrape.dataset_candidates
 where state = 'published'
 group by run_id
having min(dataset_version) <> 1 or max(dataset_version) <> count(*);

-- name: invariant_latest_is_published :many
-- Every latest row is a published row of its window and version.
select l.dataset_id || ' ' || l.entity_key as key
  from scrape.latest_observations l
  left join scrape.published_observations p
         on p.dataset_id = l.dataset_id and p.collection_window = l.collection_window
        and p.dataset_version = l.dataset_version and p.observation_key = l.observation_key
 where p.payload_hash is distinct from l.payload_hash;

-- name: invariant_delivered_has_a_receipt :many
-- A delivery is marked delivered with time and receipt, under the key its event and destination always have.
select event_id::text || ' ' || destination as key
  from scrape.deliveries
 where (state = 'delivered') <> (delivered_at is not null and receipt is not null)
    or idempotency_key <> event_id::text || '@' || destination;

-- name: invariant_artifact_is_known :many
-- An attempt that names stored bytes has their place.
select a.attempt_id::text as key
  from scrape.attempts a
  left join scrape.artifacts f on f.run_id = a.run_id and f.sha256 = a.artifact_sha256
 where a.artifact_sha256 is not null and f.sha256 is null;

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
-- A committed attempt extracted with the version that its retailer was planned with, or that its recovery batch names.
select a.attempt_id::text as key
  from scrape.attempts a
  join scrape.run_partitions p using (run_id, retailer)
  left join scrape.recovery_batches b on b.recovery_batch_id = a.recovery_batch_id
 where a.outcome in ('committed', 'reverted') and a.extractor_version <> coalesce(b.extractor_version, p.extractor_version);

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
-- Every logged task move is one that the state machine allows; what had ended is open again only by a recovery batch.
select l.id::text as key
  from scrape.state_log l
 where l.kind = 'task'
   and (coalesce(l.old_state, '-'), l.new_state) not in (
       ('-', 'pending'), ('pending', 'leased'), ('retry_wait', 'leased'), ('leased', 'pending'),
       ('leased', 'retry_wait'), ('leased', 'committed'), ('leased', 'quarantined'), ('leased', 'gone'),
       ('pending', 'quarantined'), ('retry_wait', 'quarantined'))
   and not (l.new_state = 'pending' and l.old_state in ('committed', 'quarantined', 'gone', 'retry_wait')
            and exists (select from scrape.tasks t where t.task_key = l.key::uuid and t.recovery_batch_id is not null));

-- name: invariant_repaired_under_a_batch :many
-- A task beyond its first generation belongs to a recovery batch of its own retailer and generation.
select t.task_key::text as key
  from scrape.tasks t
  left join scrape.recovery_batches b using (recovery_batch_id)
 where (t.generation > 1 or t.recovery_batch_id is not null)
   and ((b.run_id, b.retailer, b.generation) is distinct from (t.run_id, t.retailer, t.generation));

-- name: invariant_one_current_generation :many
-- Of a retailer's generations only the newest is alive.
select c.run_id || ' ' || c.retailer || ' generation ' || c.generation as key
  from scrape.candidates c
 where (c.state = 'replaced') <> exists (select from scrape.candidates n
                                          where n.run_id = c.run_id and n.retailer = c.retailer
                                            and n.generation > c.generation);

-- name: invariant_tokens_rise :many
-- A task's fencing token rises with every claim.
select key
  from (select key, token, lag(token) over (partition by key order by id) as before
          from scrape.state_log
         where kind = 'task' and new_state = 'leased') as claims
 where token <= before;

-- name: invariant_no_task_lost :many
-- As many tasks as were ever planned or named, in the log and in the partition's count, and in the frontier or out.
select p.run_id || ' ' || p.retailer as key
  from scrape.run_partitions p
  left join (select run_id, retailer, count(*) as n from scrape.tasks group by 1, 2) t using (run_id, retailer)
  left join (select run_id, retailer, count(*) as n from scrape.frontier group by 1, 2) f using (run_id, retailer)
 where p.planned <> coalesce(t.n, 0) + coalesce(f.n, 0)
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
 where c.state not in ('collecting', 'replaced')
   and (p.planned_at is null
        or exists (select 1 from scrape.tasks t
                    where t.run_id = c.run_id and t.retailer = c.retailer
                      and t.state in ('pending', 'retry_wait', 'leased'))
        or exists (select 1 from scrape.frontier f where f.run_id = c.run_id and f.retailer = c.retailer));

-- name: invariant_frontier_is_no_task :many
-- What waits to become a task is none yet.
select f.task_key::text as key
  from scrape.frontier f
  join scrape.tasks t using (task_key);

-- name: invariant_named_by_a_page :many
-- A page that is some links away from the first ones was named by a committed page, or one that is being read again.
select t.task_key::text as key
  from scrape.tasks t
 where t.depth > 0
   and not exists (select 1 from scrape.links l join scrape.tasks p on p.task_key = l.parent_key
                    where l.run_id = t.run_id and l.child_key = t.task_key and p.discovers);

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
-- A published version holds its members' accepted rows, but for those it carries, and no later version changed it.
with versions as materialized (
    select d.run_id, d.dataset_version, d.members, d.publication, r.dataset_id, r.collection_window
      from scrape.dataset_candidates d
      join scrape.runs r using (run_id)
     where d.state in ('published', 'superseded')
), holds as materialized (
    select v.run_id, v.dataset_version, p.retailer,
           encode(sha256(convert_to(string_agg(p.observation_key::text || ':' || p.payload_hash, e'\n'
                                               order by p.observation_key), 'UTF8')), 'hex') as content_hash
      from versions v
     cross join lateral scrape.as_of(v.dataset_id, v.collection_window, v.dataset_version) p
     group by v.run_id, v.dataset_version, p.retailer
), recorded as materialized (
    select v.run_id, v.dataset_version, r.key as retailer, r.value ->> 'content_hash' as content_hash,
           (r.value ->> 'unverified')::bigint as unverified,
           coalesce(jsonb_array_length(v.publication -> 'added'), 0) as added
      from versions v
     cross join lateral jsonb_each(v.publication -> 'retailers') as r
)
select coalesce(h.run_id, r.run_id) || ' v' || coalesce(h.dataset_version, r.dataset_version) || ' '
       || coalesce(h.retailer, r.retailer) as key
  from holds h
  full join recorded r using (run_id, dataset_version, retailer)
 where h.content_hash is distinct from r.content_hash
 union
select v.run_id || ' v' || v.dataset_version || ' ' || m.retailer
  from versions v
 cross join lateral jsonb_to_recordset(v.members) as m (retailer text, content_hash text, state text)
  join recorded r on r.run_id = v.run_id and r.dataset_version = v.dataset_version and r.retailer = m.retailer
 where m.state = 'accepted' and r.unverified = 0 and r.added = 0 and m.content_hash <> r.content_hash
 union
select p.run_id || ' v' || p.dataset_version || ' ' || p.retailer
  from (select distinct run_id, dataset_version, retailer from scrape.published_observations) p
 where not exists (
       select from versions v, jsonb_to_recordset(v.members) as m (retailer text, state text)
        where v.run_id = p.run_id and v.dataset_version = p.dataset_version and m.retailer = p.retailer
          and m.state = 'accepted');

-- name: invariant_one_event_per_version :many
-- Each published version has exactly one outbox event, and no event lacks its version.
select coalesce(d.run_id || ' v' || d.dataset_version, e.event_id::text) as key
  from (select run_id, dataset_version from scrape.dataset_candidates where state in ('published', 'superseded')) d
  full join (select event_id, run_id, (payload ->> 'dataset_version')::integer as dataset_version
               from scrape.outbox where event_type = 'dataset.published') e
         on e.run_id = d.run_id and e.dataset_version = d.dataset_version
 where d.run_id is null or e.run_id is null;

-- name: invariant_versions_are_gapless :many
-- Versions of a run's window count 1, 2, 3 without a gap, and the last of them alone stands.
select run_id as key
  from scrape.dataset_candidates
 where state in ('published', 'superseded')
 group by run_id
having min(dataset_version) <> 1 or max(dataset_version) <> count(*)
    or count(*) filter (where state = 'published') <> 1
    or max(dataset_version) filter (where state = 'published') <> max(dataset_version);

-- name: invariant_correction_supersedes :many
-- A corrected or withdrawn row names the version before it in which the same row stood, and a new row has none.
select p.dataset_id || ' ' || p.collection_window || ' v' || p.dataset_version || ' ' || p.observation_key as key
  from (select *, lag(dataset_version) over w as before, lag(change) over w as changed_before
          from scrape.published_observations
        window w as (partition by dataset_id, collection_window, observation_key order by dataset_version)) p
 where p.supersedes_version is distinct from p.before
    or (p.change = 'withdrawn' and p.changed_before = 'withdrawn');

-- name: invariant_latest_is_published :many
-- Every latest row is a published row of its window and version, and that row stands.
select l.dataset_id || ' ' || l.entity_key as key
  from scrape.latest_observations l
  left join scrape.published_history p
         on p.dataset_id = l.dataset_id and p.collection_window = l.collection_window
        and p.from_version = l.dataset_version and p.observation_key = l.observation_key
        and p.change <> 'withdrawn' and p.until_version is null
 where p.payload_hash is distinct from l.payload_hash;

-- name: invariant_latest_is_newest :many
-- Every entity that has a published row that stands shows the one of its newest window.
select n.dataset_id || ' ' || n.entity_key as key
  from (select distinct on (h.dataset_id, h.entity_key, h.context) h.dataset_id, h.entity_key, h.context, h.observation_key
          from scrape.published_history h
          join scrape.runs r using (run_id)
         where h.until_version is null and h.change <> 'withdrawn'
         order by h.dataset_id, h.entity_key, h.context, r.window_end desc) n
  full join scrape.latest_observations l
         on l.dataset_id = n.dataset_id and l.entity_key = n.entity_key and l.context = n.context
 where l.observation_key is distinct from n.observation_key;

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

-- name: finish_tasks :many
-- transition: task leased -> committed
-- transition: task leased -> retry_wait
-- transition: task leased -> quarantined
-- transition: task leased -> gone
-- transition: task leased -> pending
-- The fence of a whole group: an attempt whose lease was lost does not come back, and none of its rows are written.
-- One group may hold a stale and a fresh result of one task, so a result is known by its attempt, never by its task.
-- Failures and releases pass the same fence as successes. `offset 0`, and the owner: see `heartbeat`.
-- What the next window asks the committed pages by is kept; an older look never replaces a newer one.
with result as materialized (
    select * from json_to_recordset(%(results)s::json) as r (
        task_key uuid, lease_token bigint, attempt_id uuid, state text, outcome text, delay_seconds float8,
        refund integer, rate_limited integer, task_class text, row_count integer, http_status integer, page_state text,
        failure_class text, reason text, final_url text, redirects text[], content_type text, artifact_sha256 text,
        extractor_version text, collisions integer, unreadable boolean, template text, pages_of text, etag text,
        last_modified text, verified_at timestamptz)
     order by task_key
), held as materialized (
    select r.*, t.page_key
      from result r
     cross join lateral (
           select t.attempt_id, scrape.page_key(r.pages_of, t.context, t.page_type, t.canonical_url) as page_key
             from scrape.tasks t
            where t.task_key = r.task_key and t.lease_owner is not null and t.lease_token = r.lease_token
           offset 0
              for update) t
     where t.attempt_id = r.attempt_id
), moved as (
    update scrape.tasks t
       set state = case when r.state = 'pending' and t.attempt_count - r.refund >= t.max_attempts
                        then 'quarantined' else r.state end,
           attempt_count = t.attempt_count - r.refund,
           release_count = t.release_count + r.refund,
           rate_limited_count = t.rate_limited_count + r.rate_limited,
           last_failure_class = case when r.state = 'committed' then t.last_failure_class
                                     else coalesce(r.task_class, t.last_failure_class) end,
           rows_committed = r.row_count,
           from_artifact = case when r.unreadable then null else t.from_artifact end,
           next_attempt_at = clock_timestamp() + make_interval(secs => r.delay_seconds),
           lease_owner = null, lease_until = null, lease_started_at = null, deadline_at = null
      from held r
     where t.task_key = r.task_key
), closed as (
    update scrape.attempts a
       set outcome = r.outcome, finished_at = clock_timestamp(), http_status = r.http_status,
           page_state = r.page_state, failure_class = r.failure_class, reason = r.reason, final_url = r.final_url,
           redirects = r.redirects, content_type = r.content_type, artifact_sha256 = r.artifact_sha256,
           extractor_version = r.extractor_version, collisions = r.collisions, template = r.template
      from held r
     where a.attempt_id = r.attempt_id
), remembered as (
    insert into scrape.pages as known (page_key, run_id, sha256, etag, last_modified, changed_at, verified_at)
    select page_key, %(run_id)s, artifact_sha256, etag, last_modified, verified_at, verified_at
      from held
     where page_key is not null and state = 'committed'
     order by page_key
    on conflict (page_key) do update
       set run_id = excluded.run_id, sha256 = excluded.sha256, etag = excluded.etag,
           last_modified = excluded.last_modified, verified_at = excluded.verified_at,
           changed_at = case when known.sha256 = excluded.sha256 then known.changed_at else excluded.changed_at end
     where known.verified_at <= excluded.verified_at
)
select attempt_id from held;

-- name: store_observations :one
-- Rows of the tasks that passed the fence in this transaction, locked in key order. Of two tasks with one
-- observation_key the newer observation stays; the other is kept as a collision.
with result as materialized (
    select * from json_to_recordset(%(results)s::json) as r (
        task_key uuid, lease_token bigint, attempt_id uuid, observed_at timestamptz, rows json, extractor_version text)
), mine as (
    select distinct on (o.observation_key)
           o.observation_key, t.run_id, t.retailer, t.context, o.entity_key, t.task_key, t.attempt_id, t.generation,
           t.lease_token, r.observed_at, o.payload, o.payload_hash, o.sources, r.extractor_version
      from result r
     cross join lateral (select * from scrape.tasks t where t.task_key = r.task_key offset 0) t
     cross join lateral json_to_recordset(r.rows) as o (
           observation_key uuid, entity_key text, payload jsonb, payload_hash text, sources jsonb)
     where t.attempt_id = r.attempt_id and t.lease_token = r.lease_token and t.state = 'committed'
     order by o.observation_key, r.observed_at desc, t.generation desc, t.lease_token desc, t.task_key desc
), stored as (
    insert into scrape.observations as o (
           observation_key, run_id, retailer, context, entity_key, collection_window, source_task_key, attempt_id,
           generation, lease_token, observed_at, payload, payload_hash, sources, extractor_version)
    select observation_key, run_id, retailer, context, entity_key, %(collection_window)s, task_key, attempt_id,
           generation, lease_token, observed_at, payload, payload_hash, sources, extractor_version
      from mine
     order by observation_key
    on conflict (observation_key) do update
       set run_id = excluded.run_id, retailer = excluded.retailer, context = excluded.context,
           entity_key = excluded.entity_key, source_task_key = excluded.source_task_key,
           attempt_id = excluded.attempt_id, generation = excluded.generation, lease_token = excluded.lease_token,
           validation_state = 'valid', observed_at = excluded.observed_at, payload = excluded.payload,
           payload_hash = excluded.payload_hash, sources = excluded.sources,
           extractor_version = excluded.extractor_version
     where o.validation_state = 'reverted'
        or o.source_task_key = excluded.source_task_key
        or (excluded.observed_at, excluded.generation, excluded.lease_token, excluded.source_task_key)
           > (o.observed_at, o.generation, o.lease_token, o.source_task_key)
    returning 1
)
select count(*) as stored from stored;

-- name: keep_lost_observations :none
-- Rows of this group that did not win their observation_key, kept as collisions.
with result as materialized (
    select * from json_to_recordset(%(results)s::json) as r (
        task_key uuid, lease_token bigint, attempt_id uuid, observed_at timestamptz, rows json, extractor_version text)
)
insert into scrape.observation_collisions (
       observation_key, source_task_key, run_id, retailer, context, entity_key, collection_window, attempt_id,
       generation, lease_token, validation_state, observed_at, payload, payload_hash, sources, extractor_version)
select o.observation_key, t.task_key, t.run_id, t.retailer, t.context, o.entity_key, %(collection_window)s,
       t.attempt_id, t.generation, t.lease_token, 'valid', r.observed_at, o.payload, o.payload_hash, o.sources,
       r.extractor_version
  from result r
 cross join lateral (select * from scrape.tasks t where t.task_key = r.task_key offset 0) t
 cross join lateral json_to_recordset(r.rows) as o (
       observation_key uuid, entity_key text, payload jsonb, payload_hash text, sources jsonb)
  join scrape.observations c on c.observation_key = o.observation_key and c.source_task_key <> t.task_key
 where t.attempt_id = r.attempt_id and t.lease_token = r.lease_token and t.state = 'committed'
 order by o.observation_key
on conflict (observation_key, source_task_key) do update set
    attempt_id = excluded.attempt_id, generation = excluded.generation, lease_token = excluded.lease_token,
    validation_state = excluded.validation_state, observed_at = excluded.observed_at, payload = excluded.payload,
    payload_hash = excluded.payload_hash, sources = excluded.sources, extractor_version = excluded.extractor_version,
    recorded_at = clock_timestamp();

-- name: drop_lost :none
-- What these tasks gave before they were repaired and lost with, and do not give any more.
with old as materialized (
    select c.observation_key, c.source_task_key
      from scrape.observation_collisions c
     where c.source_task_key = any(%(tasks)s::uuid[]) and c.attempt_id <> all(%(attempts)s::uuid[])
     order by c.observation_key, c.source_task_key
       for update of c
)
delete from scrape.observation_collisions c
 using old
 where c.observation_key = old.observation_key and c.source_task_key = old.source_task_key;

-- name: drop_unyielded :none
-- What these tasks gave before they were repaired, and do not give any more. It was reverted then, and where another
-- task's row was there to take its place, it took it then.
with old as materialized (
    select o.observation_key
      from scrape.observations o
     where o.source_task_key = any(%(tasks)s::uuid[]) and o.attempt_id <> all(%(attempts)s::uuid[])
     order by o.observation_key
       for update of o
)
delete from scrape.observations o
 using old
 where o.observation_key = old.observation_key;

-- name: store_artifacts :none
-- Where the synced bytes lie; the same bytes stored twice in a run point to the first place, but never to that of a
-- failed attempt, which is kept for another time, once a committed one has them too.
insert into scrape.artifacts as known (run_id, sha256, retailer, segment, segment_offset, length, body_bytes)
select %(run_id)s, a.sha256, a.retailer, a.segment, a.segment_offset, a.length, a.body_bytes
  from json_to_recordset(%(artifacts)s::json) as a (
       sha256 text, retailer text, segment text, segment_offset bigint, length bigint, body_bytes bigint)
 order by a.sha256
on conflict (run_id, sha256) do update
   set segment = excluded.segment, segment_offset = excluded.segment_offset, length = excluded.length
 where known.segment ~ '/failed-[^/]*$' and excluded.segment !~ '/failed-[^/]*$';

-- name: find_closed_attempts :many
-- After a COMMIT whose answer was lost: which of these attempts did it close.
select attempt_id
  from scrape.attempts
 where attempt_id = any(%(attempt_ids)s::uuid[]) and outcome <> 'running' and outcome <> 'lease_expired';

-- name: lock_run :maybe
-- First lock of a publication; then its partitions in name order. No row: the run was never planned.
select run_id, dataset_id, collection_window, window_start, window_end
  from scrape.runs
 where run_id = %(run_id)s
   for no key update;

-- name: lock_partitions :many
select retailer
  from scrape.run_partitions
 where run_id = %(run_id)s
 order by retailer
   for no key update;

-- name: last_version :one
-- The newest published version of this run's window, 0 when there is none.
select coalesce(max(dataset_version), 0) as dataset_version
  from scrape.dataset_candidates
 where run_id = %(run_id)s and state in ('published', 'superseded');

-- name: supersede :none
-- transition: dataset_candidate published -> superseded
-- The version that stood, if there was one, stands no more; its rows stay as they are.
update scrape.dataset_candidates
   set state = 'superseded'
 where run_id = %(run_id)s and state = 'published';

-- name: mark_published :maybe
-- transition: dataset_candidate accepted -> published
update scrape.dataset_candidates
   set state = 'published', dataset_version = %(dataset_version)s, published_at = clock_timestamp()
 where run_id = %(run_id)s and sequence = %(sequence)s and state = 'accepted'
returning sequence;

-- name: carry_unverified :one
-- Rows of the version before whose page could not be read again: kept, and said to be.
with standing as materialized (
    select distinct on (p.observation_key) p.observation_key, p.change
      from scrape.published_observations p
     where p.dataset_id = %(dataset_id)s and p.collection_window = %(collection_window)s
       and p.retailer = any(%(kept)s::text[])
     order by p.observation_key, p.dataset_version desc
), carried as (
    insert into scrape.carried_observations (run_id, dataset_version, observation_key, reason)
    select %(run_id)s, %(dataset_version)s, s.observation_key, coalesce(t.last_failure_class, t.state)
      from standing s
      join scrape.observations o on o.observation_key = s.observation_key and o.validation_state = 'reverted'
      join scrape.tasks t on t.task_key = o.source_task_key and t.state = 'quarantined'
     where s.change <> 'withdrawn'
    returning 1
)
select count(*) as carried from carried;

-- name: keep_carried :none
-- What the version before kept unverified of retailers that this one carries whole, it keeps as well.
insert into scrape.carried_observations (run_id, dataset_version, observation_key, reason)
select c.run_id, %(dataset_version)s, c.observation_key, c.reason
  from scrape.carried_observations c
  join scrape.as_of(%(dataset_id)s, %(collection_window)s, %(dataset_version)s - 1) p using (observation_key)
 where c.run_id = %(run_id)s and c.dataset_version = %(dataset_version)s - 1
   and p.retailer <> all(%(retailers)s::text[]);

-- name: lock_latest :one
-- Two windows of a dataset may be published at one time, and both may be the newest that an entity has.
select pg_advisory_xact_lock(hashtextextended('scrape.latest ' || %(dataset_id)s, 0)) as locked;

-- name: publish_observations :many
-- What the accepted members' valid rows, as they stand under the locks, change in the version before: rows that are
-- new, that say something else, or that no page gives any more. Fields that the schema did not have when a row was
-- published do not count: `added` names them for each version.
with standing as materialized (
    select distinct on (p.observation_key) p.*
      from scrape.published_observations p
     where p.dataset_id = %(dataset_id)s and p.collection_window = %(collection_window)s
       and p.retailer = any(%(retailers)s::text[])
     order by p.observation_key, p.dataset_version desc
), mine as materialized (
    select o.*, a.recovery_batch_id
      from scrape.observations o
      join scrape.attempts a on a.attempt_id = o.attempt_id
     where o.run_id = %(run_id)s and o.retailer = any(%(retailers)s::text[]) and o.validation_state = 'valid'
), changed as (
    select m.retailer, m.context, m.observation_key, m.entity_key, m.observed_at, m.extractor_version, m.payload,
           m.payload_hash, case when s.observation_key is null then 'new' else 'corrected' end as change,
           s.dataset_version as supersedes_version, m.recovery_batch_id
      from mine m
      left join standing s using (observation_key)
     where s.observation_key is null or s.change = 'withdrawn'
        or (s.payload_hash <> m.payload_hash
            and m.payload - array(select jsonb_array_elements_text(%(added)s::jsonb -> s.dataset_version::text))
                is distinct from s.payload)
     union all
    select s.retailer, s.context, s.observation_key, s.entity_key, s.observed_at, s.extractor_version, s.payload,
           s.payload_hash, 'withdrawn', s.dataset_version, p.recovery_batch_id
      from standing s
      join scrape.run_partitions p on p.run_id = %(run_id)s and p.retailer = s.retailer
     where s.change <> 'withdrawn'
       and not exists (select from mine m where m.observation_key = s.observation_key)
       and not exists (select from scrape.carried_observations c
                        where c.run_id = %(run_id)s and c.dataset_version = %(dataset_version)s
                          and c.observation_key = s.observation_key)
), published as (
    insert into scrape.published_observations (
           dataset_id, collection_window, dataset_version, retailer, context, observation_key, entity_key, observed_at,
           extractor_version, payload, payload_hash, change, supersedes_version, recovery_batch_id, run_id)
    select %(dataset_id)s, %(collection_window)s, %(dataset_version)s, retailer, context, observation_key, entity_key,
           observed_at, extractor_version, payload, payload_hash, change, supersedes_version, recovery_batch_id, %(run_id)s
      from changed
    returning change
)
select change, count(*) as rows from published group by change;

-- name: describe_version :many
-- What a version holds of each retailer: rows, those carried unverified, and the hash over keys and values.
select p.retailer, count(*) as rows, count(*) filter (where p.unverified) as unverified,
       encode(sha256(convert_to(string_agg(p.observation_key::text || ':' || p.payload_hash, e'\n'
                                           order by p.observation_key), 'UTF8')), 'hex') as content_hash
  from scrape.as_of(%(dataset_id)s, %(collection_window)s, %(dataset_version)s) p
 group by p.retailer
 order by p.retailer;

-- name: record_publication :none
update scrape.dataset_candidates
   set publication = %(publication)s
 where run_id = %(run_id)s and dataset_version = %(dataset_version)s;

-- name: advance_latest :none
-- A newer window beats an older one, a later version beats what it corrects, whichever was published first.
insert into scrape.latest_observations as l (
       dataset_id, entity_key, context, observation_key, retailer, collection_window, window_end, dataset_version,
       observed_at, payload, payload_hash)
select p.dataset_id, p.entity_key, p.context, p.observation_key, p.retailer, p.collection_window, r.window_end,
       p.dataset_version, p.observed_at, p.payload, p.payload_hash
  from scrape.published_observations p
  join scrape.runs r using (run_id)
 where p.run_id = %(run_id)s and p.dataset_version = %(dataset_version)s and p.change <> 'withdrawn'
 order by p.dataset_id, p.entity_key, p.context
on conflict (dataset_id, entity_key, context) do update
   set observation_key = excluded.observation_key, retailer = excluded.retailer,
       collection_window = excluded.collection_window, window_end = excluded.window_end,
       dataset_version = excluded.dataset_version, observed_at = excluded.observed_at, payload = excluded.payload,
       payload_hash = excluded.payload_hash
 where (excluded.window_end, excluded.dataset_version, excluded.observed_at)
       > (l.window_end, l.dataset_version, l.observed_at);

-- name: withdraw_latest :none
-- An entity whose row this version withdraws shows its newest published row of an earlier window again, or nothing.
with withdrawn as materialized (
    select p.dataset_id, p.entity_key, p.context, p.observation_key, r.window_end
      from scrape.published_observations p
      join scrape.runs r using (run_id)
     where p.run_id = %(run_id)s and p.dataset_version = %(dataset_version)s and p.change = 'withdrawn'
), removed as (
    delete from scrape.latest_observations l
     using withdrawn w
     where l.dataset_id = w.dataset_id and l.entity_key = w.entity_key and l.context = w.context
       and l.observation_key = w.observation_key
    returning w.*
), earlier as (
    select distinct on (w.entity_key, w.context) w.dataset_id, w.entity_key, w.context, h.observation_key, h.retailer,
           h.collection_window, r.window_end, h.dataset_version, h.observed_at, h.payload, h.payload_hash
      from removed w
      join scrape.published_observations h
        on h.dataset_id = w.dataset_id and h.entity_key = w.entity_key and h.context = w.context
      join scrape.runs r on r.run_id = h.run_id and r.window_end < w.window_end
     where h.change <> 'withdrawn'
       and not exists (select from scrape.published_observations later
                        where later.dataset_id = h.dataset_id and later.collection_window = h.collection_window
                          and later.observation_key = h.observation_key and later.dataset_version > h.dataset_version)
     order by w.entity_key, w.context, r.window_end desc
)
insert into scrape.latest_observations as l (
       dataset_id, entity_key, context, observation_key, retailer, collection_window, window_end, dataset_version,
       observed_at, payload, payload_hash)
select * from earlier
on conflict (dataset_id, entity_key, context) do update
   set observation_key = excluded.observation_key, retailer = excluded.retailer,
       collection_window = excluded.collection_window, window_end = excluded.window_end,
       dataset_version = excluded.dataset_version, observed_at = excluded.observed_at, payload = excluded.payload,
       payload_hash = excluded.payload_hash;

-- name: write_event :maybe
-- No row: that run is said to be late already.
insert into scrape.outbox (event_id, run_id, event_type, payload)
values (%(event_id)s, %(run_id)s, %(event_type)s, %(payload)s)
on conflict (run_id) where event_type = 'dataset.late' do nothing
returning event_id;

-- name: open_deliveries :none
-- transition: delivery - -> unsent
insert into scrape.deliveries (event_id, destination, idempotency_key)
select %(event_id)s, d.destination, d.idempotency_key
  from json_to_recordset(%(destinations)s::json) as d (destination text, idempotency_key text);

-- name: find_without_version :many
-- Windows of which no version exists and nobody has said so yet, the newest first.
select r.run_id, r.collection_window, r.window_start, r.window_end
  from scrape.runs r
 where r.dataset_id = %(dataset_id)s
   and not exists (select from scrape.dataset_candidates d
                    where d.run_id = r.run_id and d.state in ('published', 'superseded'))
   and not exists (select from scrape.outbox e where e.run_id = r.run_id and e.event_type = 'dataset.late')
 order by r.window_start desc
 limit %(at_most)s;

-- name: is_said_late :one
select exists (select from scrape.outbox where run_id = %(run_id)s and event_type = 'dataset.late') as said;

-- name: last_good :maybe
-- The newest window before this one that has a version: what consumers go on reading.
select r.collection_window, d.dataset_version, d.published_at
  from scrape.runs r
  join scrape.dataset_candidates d on d.run_id = r.run_id and d.state = 'published'
 where r.dataset_id = %(dataset_id)s and r.window_start < %(window_start)s
 order by r.window_start desc
 limit 1;

-- name: get_versions :many
-- Every version of one window, oldest first.
select d.dataset_version, d.sequence, d.state, d.published_at, d.members, d.verdict, d.publication, d.content_hash
  from scrape.dataset_candidates d
 where d.run_id = %(run_id)s and d.dataset_version is not null
 order by d.dataset_version;

-- name: get_batches :many
-- The recovery batches of a run, oldest first, with what became of their tasks' stored pages.
select b.recovery_batch_id, b.retailer, b.generation, b.manifest_hash, b.extractor_version, b.selection, b.selected,
       b.joined, b.from_artifacts, b.created_at,
       (select count(*) from scrape.attempts a
         where a.recovery_batch_id = b.recovery_batch_id and not a.from_artifact) as requests
  from scrape.recovery_batches b
 where b.run_id = %(run_id)s
 order by b.created_at, b.retailer;

-- name: version_extractors :many
-- Which extractor versions gave the rows of a version.
select retailer, extractor_version, count(*) as rows
  from scrape.as_of(%(dataset_id)s, %(collection_window)s, %(dataset_version)s)
 group by retailer, extractor_version
 order by retailer, extractor_version;

-- name: copy_latest :copy
-- The newest published row of every entity of a dataset.
copy (
    select l.retailer, l.context, l.entity_key, l.collection_window, l.dataset_version, extract(epoch from l.observed_at)::float8,
           extract(epoch from l.known_at)::float8, l.payload::text
      from scrape.latest l
     where l.dataset_id = %(dataset_id)s
     order by l.retailer, l.entity_key, l.context
) to stdout;

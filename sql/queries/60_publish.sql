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
 where run_id = %(run_id)s and state = 'published';

-- name: publish_observations :one
-- The accepted members' valid rows, as they stand under the locks, become the version.
with published as (
    insert into scrape.published_observations (
           dataset_id, collection_window, dataset_version, retailer, context, observation_key, entity_key, observed_at,
           extractor_version, payload, payload_hash, change, run_id)
    select r.dataset_id, r.collection_window, %(dataset_version)s, o.retailer, o.context, o.observation_key, o.entity_key,
           o.observed_at, o.extractor_version, o.payload, o.payload_hash, 'new', o.run_id
      from scrape.observations o
      join scrape.runs r using (run_id)
     where o.run_id = %(run_id)s and o.validation_state = 'valid'
    returning 1
)
select count(*) as rows from published;

-- name: advance_latest :none
-- A newer window beats an older one, a later version beats what it corrects, whichever was published first.
insert into scrape.latest_observations as l (
       dataset_id, entity_key, context, observation_key, retailer, collection_window, window_end, dataset_version,
       observed_at, payload, payload_hash)
select p.dataset_id, p.entity_key, p.context, p.observation_key, p.retailer, p.collection_window, r.window_end,
       p.dataset_version, p.observed_at, p.payload, p.payload_hash
  from scrape.published_observations p
  join scrape.runs r using (run_id)
 where p.run_id = %(run_id)s and p.dataset_version = %(dataset_version)s
 order by p.dataset_id, p.entity_key, p.context
on conflict (dataset_id, entity_key, context) do update
   set observation_key = excluded.observation_key, retailer = excluded.retailer,
       collection_window = excluded.collection_window, window_end = excluded.window_end,
       dataset_version = excluded.dataset_version, observed_at = excluded.observed_at, payload = excluded.payload,
       payload_hash = excluded.payload_hash
 where (excluded.window_end, excluded.dataset_version, excluded.observed_at)
       > (l.window_end, l.dataset_version, l.observed_at);

-- name: mark_published :maybe
-- transition: dataset_candidate accepted -> published
update scrape.dataset_candidates
   set state = 'published', dataset_version = %(dataset_version)s, published_at = clock_timestamp()
 where run_id = %(run_id)s and sequence = %(sequence)s and state = 'accepted'
returning sequence;

-- name: write_event :none
insert into scrape.outbox (event_id, run_id, event_type, payload)
values (%(event_id)s, %(run_id)s, 'dataset.published', %(payload)s);

-- name: open_deliveries :none
-- transition: delivery - -> unsent
insert into scrape.deliveries (event_id, destination, idempotency_key)
select %(event_id)s, d.destination, d.idempotency_key
  from json_to_recordset(%(destinations)s::json) as d (destination text, idempotency_key text);

-- name: open_run :maybe
-- No row back means the run exists already, with the scope it was given then.
insert into scrape.runs (run_id, dataset_id, collection_window, window_start, window_end)
values (%(run_id)s, %(dataset_id)s, %(collection_window)s, %(window_start)s, %(window_end)s)
on conflict do nothing
returning run_id;

-- name: get_run :maybe
-- One run's identity and bounds.
select run_id, dataset_id, collection_window, window_start, window_end
  from scrape.runs
 where run_id = %(run_id)s;

-- name: open_partitions :none
-- Freezes the run's scope: later retailers of the declaration are not in it.
insert into scrape.run_partitions (run_id, retailer)
select %(run_id)s, name
  from unnest(%(retailers)s::text[]) as name
on conflict do nothing;

-- name: get_partitions :many
-- The run's scope, with what is frozen of each retailer.
-- `manifest` and what follows from it: of the newest recovery batch, where there is one.
select p.run_id, p.retailer, coalesce(b.manifest, p.manifest) as manifest,
       coalesce(b.manifest_hash, p.manifest_hash) as manifest_hash,
       coalesce(b.extractor_version, p.extractor_version) as extractor_version,
       coalesce(b.page_sources, p.page_sources) as page_sources, p.origins, p.planned_at, p.planned, p.rejected,
       p.closing_at, p.paused_at, p.pause_reason, p.recovery_batch_id, p.canary, p.canary_checks
  from scrape.run_partitions p
  left join scrape.recovery_batches b using (recovery_batch_id)
 where p.run_id = %(run_id)s
 order by p.retailer;

-- name: lock_partition :maybe
-- Planning, closing, accepting and recovery take this lock; what they test, they test in a later statement.
-- No stronger one is needed, and a stronger one would wait for, and be waited for by, every row that refers to this.
select retailer, planned_at, pause_reason, canary
  from scrape.run_partitions
 where run_id = %(run_id)s and retailer = %(retailer)s
   for no key update;

-- name: create_planned_lines :none
-- Takes the inventory of one retailer by COPY; gone with the transaction.
create temporary table planned_lines (
    task_key uuid, context text, page_type text, url text, canonical_url text, origin text, entity text,
    priority integer, discovers boolean
) on commit drop;

-- name: copy_planned_lines :copy
copy planned_lines (task_key, context, page_type, url, canonical_url, origin, entity, priority, discovers) from stdin;

-- name: copy_inventory_rejections :copy
copy scrape.inventory_rejections (run_id, retailer, line, content, reason) from stdin;

-- name: insert_tasks :one
-- transition: task - -> pending
-- Planning again adds nothing: the keys are there. Keys are hashes, so that their first ones are a fair sample. What
-- an origin has no room for waits in the frontier.
with lines as materialized (
    select distinct on (task_key) *
      from planned_lines
     order by task_key
), placed as materialized (
    select *, row_number() over (order by task_key) <= %(canary)s as canary,
           row_number() over (partition by origin order by priority desc, task_key) > %(open)s as waits
      from lines
), inserted as (
    insert into scrape.tasks (task_key, run_id, retailer, context, page_type, discovers, url, canonical_url, origin,
                              entity, priority, max_attempts, canary)
    select task_key, %(run_id)s, %(retailer)s, context, page_type, discovers, url, canonical_url, origin, entity,
           priority, %(max_attempts)s, canary
      from placed
     where canary or not waits
    on conflict (task_key) do nothing
    returning origin
), waiting as (
    insert into scrape.frontier (task_key, run_id, retailer, context, page_type, discovers, url, canonical_url, origin,
                                 entity, priority, depth, barren, max_attempts, generation)
    select task_key, %(run_id)s, %(retailer)s, context, page_type, discovers, url, canonical_url, origin, entity,
           priority, 0, 0, %(max_attempts)s, 1
      from placed
     where waits and not canary
    on conflict (task_key) do nothing
    returning origin
), all_of_them as (
    select origin from inserted union all select origin from waiting
)
select count(*) as planned, coalesce(array_agg(distinct origin), '{}') as origins
  from all_of_them;

-- name: freeze_partition :none
update scrape.run_partitions
   set manifest = %(manifest)s, manifest_hash = %(manifest_hash)s, extractor_version = %(extractor_version)s,
       page_sources = %(page_sources)s, origins = %(origins)s, planned = %(planned)s::bigint, rejected = %(rejected)s,
       canary = case when %(canary)s between 1 and %(planned)s::bigint - 1 then 'running' else 'none' end,
       planned_at = clock_timestamp()
 where run_id = %(run_id)s and retailer = %(retailer)s;

-- name: open_candidate :none
-- transition: candidate - -> collecting
insert into scrape.candidates (run_id, retailer, generation)
values (%(run_id)s, %(retailer)s, 1)
on conflict do nothing;

-- name: apply_max_attempts :none
-- A live key: open tasks follow the declaration; one that has spent more already keeps one more try.
with open as materialized (
    select task_key
      from scrape.tasks
     where run_id = %(run_id)s and retailer = %(retailer)s
       and state in ('pending', 'retry_wait')
       and max_attempts <> greatest(%(max_attempts)s, attempt_count + 1)
     order by task_key
       for update skip locked
)
update scrape.tasks t
   set max_attempts = greatest(%(max_attempts)s, t.attempt_count + 1)
  from open
 where t.task_key = open.task_key;

-- name: get_inventory_rejections :many
select line, content, reason
  from scrape.inventory_rejections
 where run_id = %(run_id)s and retailer = %(retailer)s
 order by line
 limit %(at_most)s;

-- name: count_open :one
-- Asked in a statement of its own, after the partition's lock: a single locking statement keeps the snapshot
-- from before its wait.
select count(*) as open
  from scrape.tasks
 where run_id = %(run_id)s and retailer = %(retailer)s and state in ('pending', 'retry_wait', 'leased');

-- name: get_candidate :maybe
-- The retailer's current generation.
select generation, state, verdict, content_hash
  from scrape.candidates
 where run_id = %(run_id)s and retailer = %(retailer)s
 order by generation desc
 limit 1;

-- name: to_candidate :none
-- transition: candidate collecting -> candidate
-- transition: candidate accepted -> candidate
-- transition: candidate rejected -> candidate
-- Closed, or up for judgement again under changed acceptance rules; the old verdict stays in `verdicts`.
update scrape.candidates
   set state = 'candidate', verdict = null, decided_at = null
 where run_id = %(run_id)s and retailer = %(retailer)s and generation = %(generation)s
   and state in ('collecting', 'accepted', 'rejected');

-- name: content_hash :one
-- SHA-256 over the candidate's sorted keys and payload hashes, and how many rows it has.
select count(*) as rows,
       encode(sha256(convert_to(coalesce(
           string_agg(observation_key::text || ':' || payload_hash, e'\n' order by observation_key), ''), 'UTF8')), 'hex')
         as content_hash
  from scrape.observations
 where run_id = %(run_id)s and retailer = %(retailer)s and validation_state = 'valid';

-- name: clock :one
select extract(epoch from clock_timestamp())::float8 as now;

-- name: count_tasks :many
-- The partition's tasks by state.
select state, count(*) as tasks
  from scrape.tasks
 where run_id = %(run_id)s and retailer = %(retailer)s
 group by state;

-- name: count_collisions :one
-- Entities that two tasks reported with different values, and rows that contradicted another one of their page.
select (select count(distinct c.observation_key)
          from scrape.observation_collisions c
          join scrape.observations o using (observation_key)
         where c.run_id = %(run_id)s and c.retailer = %(retailer)s and c.payload_hash <> o.payload_hash)
     + (select coalesce(sum(a.collisions), 0)
          from scrape.attempts a
         where a.run_id = %(run_id)s and a.retailer = %(retailer)s and a.outcome = 'committed') as collisions;

-- name: copy_candidate_rows :copy
copy (
    select o.entity_key, o.context, t.url, extract(epoch from o.observed_at)::float8, o.payload::text
      from scrape.observations o
      join scrape.tasks t on t.task_key = o.source_task_key
     where o.run_id = %(run_id)s and o.retailer = %(retailer)s and o.validation_state = 'valid'
     order by o.observation_key
) to stdout;

-- name: decide_candidate :maybe
-- transition: candidate candidate -> accepted
-- transition: candidate candidate -> rejected
update scrape.candidates
   set state = case when %(accepted)s then 'accepted' else 'rejected' end, verdict = %(verdict)s,
       content_hash = %(content_hash)s, decided_at = clock_timestamp()
 where run_id = %(run_id)s and retailer = %(retailer)s and generation = %(generation)s and state = 'candidate'
returning state;

-- name: append_verdict :none
insert into scrape.verdicts (run_id, retailer, generation, sequence, accepted, content_hash, checks)
values (%(run_id)s, %(retailer)s, %(generation)s, %(sequence)s, %(accepted)s, %(content_hash)s, %(checks)s);

-- name: get_members :many
-- The current generation of every retailer in the run's scope; a retailer not yet planned has none.
select p.retailer, c.generation, c.state, c.content_hash, c.verdict
  from scrape.run_partitions p
  left join lateral (
       select generation, state, content_hash, verdict
         from scrape.candidates c
        where c.run_id = p.run_id and c.retailer = p.retailer
        order by generation desc
        limit 1) c on true
 where p.run_id = %(run_id)s
 order by p.retailer;

-- name: get_dataset_candidate :maybe
-- The newest attempt to make a version of this run.
select sequence, state, members, verdict, content_hash, dataset_version
  from scrape.dataset_candidates
 where run_id = %(run_id)s
 order by sequence desc
 limit 1;

-- name: get_published_candidate :maybe
-- The attempt that became the version that stands.
select sequence, state, members, verdict, content_hash, dataset_version
  from scrape.dataset_candidates
 where run_id = %(run_id)s and state = 'published'
 order by dataset_version desc
 limit 1;

-- name: find_undecided :many
-- Partitions of which nothing is open and that nobody judged: what their collecting run left was ended without it.
select c.run_id, c.retailer, r.collection_window
  from scrape.candidates c
  join scrape.runs r using (run_id)
  join scrape.run_partitions p using (run_id, retailer)
 where c.state in ('collecting', 'candidate') and r.dataset_id = %(dataset_id)s and p.planned_at is not null
   and not exists (select 1 from scrape.tasks t
                    where t.run_id = c.run_id and t.retailer = c.retailer
                      and t.state in ('pending', 'retry_wait', 'leased'))
 order by r.window_start, c.retailer;

-- name: find_releasable :many
-- Windows whose retailers are all accepted and that may lack a version of what was accepted: nobody judged them
-- together yet, nobody published what was, or a retailer was judged again since.
select r.run_id, r.collection_window
  from scrape.runs r
  left join lateral (
       select state, decided_at
         from scrape.dataset_candidates d
        where d.run_id = r.run_id
        order by sequence desc
        limit 1) d on true
  cross join lateral (
       select bool_and(coalesce(c.state = 'accepted', false)) as accepted, max(c.decided_at) as decided_at
         from scrape.run_partitions p
         left join lateral (
              select state, decided_at
                from scrape.candidates c
               where c.run_id = p.run_id and c.retailer = p.retailer
               order by generation desc
               limit 1) c on true
        where p.run_id = r.run_id) members
 where r.dataset_id = %(dataset_id)s
   and members.accepted
   and (d.state is null or d.state = 'accepted' or d.decided_at < members.decided_at)
 order by r.collection_window;

-- name: open_dataset_candidate :one
-- transition: dataset_candidate - -> candidate
insert into scrape.dataset_candidates (run_id, sequence, members, content_hash)
select %(run_id)s, coalesce(max(sequence), 0) + 1, %(members)s, %(content_hash)s
  from scrape.dataset_candidates
 where run_id = %(run_id)s
returning sequence;

-- name: decide_dataset_candidate :maybe
-- transition: dataset_candidate candidate -> accepted
-- transition: dataset_candidate candidate -> rejected
update scrape.dataset_candidates
   set state = case when %(accepted)s then 'accepted' else 'rejected' end, verdict = %(verdict)s,
       decided_at = clock_timestamp()
 where run_id = %(run_id)s and sequence = %(sequence)s and state = 'candidate'
returning state;

-- name: reject_moved_dataset_candidates :none
-- transition: dataset_candidate accepted -> rejected
-- A member was judged again: what named its old verdict can no longer be published.
update scrape.dataset_candidates
   set state = 'rejected',
       verdict = verdict || jsonb_build_object('accepted', false, 'member_moved', %(retailer)s::text)
 where run_id = %(run_id)s and state = 'accepted';

-- name: count_duplicate_entities :one
-- Over all members: entities with more than one valid row in this run and context.
select count(*) as entities
  from (select 1 from scrape.observations
         where run_id = %(run_id)s and validation_state = 'valid'
         group by entity_key, context having count(*) > 1) as doubled;

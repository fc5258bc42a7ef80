-- name: count_open :one
-- Asked in a statement of its own, after the partition's lock: a single locking statement keeps the snapshot
-- from before its wait.
select (select count(*) from scrape.tasks
         where run_id = %(run_id)s and retailer = %(retailer)s and state in ('pending', 'retry_wait', 'leased'))
     + (select count(*) from scrape.frontier where run_id = %(run_id)s and retailer = %(retailer)s) as open;

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

-- name: published_content :many
-- What the version that stands holds of each retailer.
select coalesce(m.carried_from_version, d.dataset_version) as dataset_version, r.key as retailer,
       (r.value ->> 'rows')::bigint as rows, r.value ->> 'content_hash' as content_hash
  from scrape.dataset_candidates d
 cross join lateral jsonb_each(d.publication -> 'retailers') as r
  left join lateral jsonb_to_recordset(d.members) as m (retailer text, carried_from_version integer) on m.retailer = r.key
 where d.run_id = %(run_id)s and d.state = 'published'
 order by r.key;

-- name: accepted_windows :many
-- The figures of the retailer's accepted windows before this one, or after it, the nearest first. One that passed only
-- because a dry run held a failed rule back was not found good, and nothing is compared with it.
select r.run_id, r.collection_window, r.window_start, c.verdict -> 'figures' as figures, c.content_hash
  from scrape.runs r
  join scrape.runs mine on mine.run_id = %(run_id)s and mine.dataset_id = r.dataset_id
 cross join lateral (
       select state, verdict, content_hash
         from scrape.candidates c
        where c.run_id = r.run_id and c.retailer = %(retailer)s
        order by generation desc
        limit 1) c
 where case when %(later)s then r.window_start > mine.window_start else r.window_start < mine.window_start end
   and c.state = 'accepted' and c.verdict ? 'figures' and not c.verdict @> '{"checks": [{"held": "dry_run"}]}'
 order by abs(extract(epoch from r.window_start - mine.window_start))
 limit %(at_most)s;

-- name: get_extractors :many
-- Which extractor versions gave the rows of a retailer that stand in a run.
select distinct extractor_version
  from scrape.observations
 where run_id = %(run_id)s and retailer = %(retailer)s and validation_state = 'valid';

-- name: copy_earlier_rows :copy
-- What an accepted earlier window says of the retailer's entities.
copy (
    select o.entity_key, o.context, o.payload ->> 'price', o.payload ->> 'list_price', o.payload ->> 'currency', o.payload_hash
      from scrape.observations o
     where o.run_id = %(run_id)s and o.retailer = %(retailer)s and o.validation_state = 'valid'
) to stdout;

-- name: copy_published_rows :copy
-- What the version of this window that stands says of the retailer's entities.
copy (
    select p.entity_key, p.context, p.payload ->> 'price', p.payload ->> 'list_price', p.payload ->> 'currency', p.payload_hash
      from scrape.as_of(%(dataset_id)s, %(collection_window)s, %(dataset_version)s) p
     where p.retailer = %(retailer)s
) to stdout;

-- name: count_undiscovered :one
-- Pages that gave rows in that earlier window, and that nobody planned in this one.
select count(*) as pages
  from scrape.tasks before
 where before.run_id = %(earlier_run_id)s and before.retailer = %(retailer)s and before.state = 'committed'
   and not before.discovers
   and not exists (select from scrape.tasks now
                    where now.run_id = %(run_id)s and now.retailer = %(retailer)s
                      and now.canonical_url = before.canonical_url and now.context = before.context);

-- name: last_page_states :many
-- What the last answer of each task that has ended turned out to be.
select a.page_state, count(*) as tasks
  from scrape.tasks t
  join scrape.attempts a on a.attempt_id = t.attempt_id
 where t.run_id = %(run_id)s and t.retailer = %(retailer)s and a.page_state is not null
   and t.state in ('committed', 'quarantined', 'gone') and not t.discovers
 group by a.page_state
 order by tasks desc, a.page_state;

-- name: count_canary :one
select count(*) filter (where state = 'committed') as committed, count(*) filter (where state = 'gone') as gone,
       count(*) filter (where state = 'quarantined') as quarantined, count(*) as planned
  from scrape.tasks
 where run_id = %(run_id)s and retailer = %(retailer)s and canary;

-- name: decide_canary :maybe
-- A canary that failed stops the retailer: nothing further of it is asked for until a person decides. A verdict over a
-- canary that was opened again since decides nothing.
update scrape.run_partitions p
   set canary = case when %(passed)s then 'passed' else 'failed' end, canary_checks = %(checks)s,
       paused_at = case when %(passed)s then paused_at else coalesce(paused_at, clock_timestamp()) end,
       pause_reason = case when %(passed)s then pause_reason else coalesce(pause_reason, %(reason)s) end
 where p.run_id = %(run_id)s and p.retailer = %(retailer)s and p.canary = 'running'
   and p.recovery_batch_id is not distinct from %(recovery_batch_id)s
   and not exists (select from scrape.tasks t
                    where t.run_id = p.run_id and t.retailer = p.retailer and t.canary
                      and t.state in ('pending', 'retry_wait', 'leased'))
returning p.canary;

-- name: add_waiver :none
insert into scrape.waivers (waiver_id, run_id, retailer, rule, owner, reason, until)
values (%(waiver_id)s, %(run_id)s, %(retailer)s, %(rule)s, %(owner)s, %(reason)s, %(until)s);

-- name: get_waivers :many
-- Those that count now, of one retailer or of the dataset; an expired one does not.
select waiver_id, run_id, retailer, rule, owner, reason, until
  from scrape.waivers
 where run_id = %(run_id)s and retailer is not distinct from %(retailer)s and until > clock_timestamp()
 order by rule, created_at;

-- name: get_run_waivers :many
-- All that was ever waived of a run, also what is over; a revoked one ended when it was revoked.
select waiver_id, run_id, retailer, rule, owner, reason, until, until > clock_timestamp() as counts
  from scrape.waivers
 where run_id = %(run_id)s
 order by created_at;

-- name: end_waiver :maybe
-- It counts no more; no row when it was over, or is none of this run.
update scrape.waivers
   set until = clock_timestamp()
 where waiver_id = %(waiver_id)s and run_id = %(run_id)s and until > clock_timestamp()
returning waiver_id, run_id, retailer, rule, owner, reason, until;

-- name: clock :one
select extract(epoch from clock_timestamp())::float8 as now;

-- name: count_tasks :many
-- The partition's tasks by state, without the pages that only name others.
select state, count(*) as tasks
  from scrape.tasks
 where run_id = %(run_id)s and retailer = %(retailer)s and not discovers
 group by state;

-- name: count_collisions :one
-- Entities that two tasks reported with different values, and rows that contradicted another one of their page.
select (select count(distinct c.observation_key)
          from scrape.observation_collisions c
          join scrape.observations o using (observation_key)
         where c.run_id = %(run_id)s and c.retailer = %(retailer)s and c.payload_hash <> o.payload_hash
           and c.validation_state = 'valid' and o.validation_state = 'valid')
     + (select coalesce(sum(a.collisions), 0)
          from scrape.attempts a
         where a.run_id = %(run_id)s and a.retailer = %(retailer)s and a.outcome = 'committed') as collisions;

-- name: copy_candidate_rows :copy
copy (
    select o.entity_key, o.context, t.url, a.artifact_sha256, o.payload_hash, extract(epoch from o.observed_at)::float8,
           o.payload::text
      from scrape.observations o
      join scrape.tasks t on t.task_key = o.source_task_key
      join scrape.attempts a on a.attempt_id = o.attempt_id
     where o.run_id = %(run_id)s and o.retailer = %(retailer)s and o.validation_state = 'valid'
     order by o.observation_key
) to stdout;

-- name: copy_templates :copy
-- What the pages of the rows that stand are laid out like, a page each.
copy (
    select distinct on (o.source_task_key) t.url, t.page_type, a.template, a.artifact_sha256, o.entity_key
      from scrape.observations o
      join scrape.tasks t on t.task_key = o.source_task_key
      join scrape.attempts a on a.attempt_id = o.attempt_id
     where o.run_id = %(run_id)s and o.retailer = %(retailer)s and o.validation_state = 'valid'
       and a.template is not null
     order by o.source_task_key, o.observation_key
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

-- name: get_verdicts :many
-- The last judgement of every generation of a run's retailers.
select distinct on (v.retailer, v.generation) v.retailer, v.generation, v.accepted, v.checks, v.judged_at
  from scrape.verdicts v
 where v.run_id = %(run_id)s and v.retailer is not null
 order by v.retailer, v.generation, v.verdict_id desc;

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
select sequence, state, members, verdict, content_hash, dataset_version, publication
  from scrape.dataset_candidates
 where run_id = %(run_id)s
 order by sequence desc
 limit 1;

-- name: get_published_candidate :maybe
-- The attempt that became the version that stands.
select sequence, state, members, verdict, content_hash, dataset_version, publication
  from scrape.dataset_candidates
 where run_id = %(run_id)s and state = 'published';

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
   and not exists (select 1 from scrape.frontier f where f.run_id = c.run_id and f.retailer = c.retailer)
 order by r.window_start, c.retailer;

-- name: find_releasable :many
-- Windows that may lack a version of what is accepted: nobody judged their retailers together yet, nobody published
-- what was, or a retailer was judged again since. Which of them are due, their policy says.
select r.run_id, r.collection_window
  from scrape.runs r
  left join lateral (
       select state, decided_at
         from scrape.dataset_candidates d
        where d.run_id = r.run_id
        order by sequence desc
        limit 1) d on true
  cross join lateral (
       select coalesce(bool_or(c.state = 'accepted'), false) as accepted, max(c.decided_at) as decided_at
         from scrape.run_partitions p
        cross join lateral (
              select state, decided_at
                from scrape.candidates c
               where c.run_id = p.run_id and c.retailer = p.retailer
               order by generation desc
               limit 1) c
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

-- name: versions_before :many
-- What the last published earlier windows hold of each retailer, newest first.
select r.collection_window, r.window_start, d.publication -> 'retailers' as retailers
  from scrape.runs r
  join scrape.runs mine on mine.run_id = %(run_id)s and mine.dataset_id = r.dataset_id
  join scrape.dataset_candidates d on d.run_id = r.run_id and d.state = 'published'
 where r.window_start < mine.window_start
 order by r.window_start desc
 limit %(at_most)s;

-- name: count_duplicate_entities :one
-- Over all members: entities with more than one valid row in this run and context.
select count(*) as entities
  from (select 1 from scrape.observations
         where run_id = %(run_id)s and retailer = any(%(retailers)s::text[]) and validation_state = 'valid'
         group by entity_key, context having count(*) > 1) as doubled;

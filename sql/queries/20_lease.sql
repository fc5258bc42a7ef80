-- name: claim :many
-- transition: task pending -> leased
-- transition: task retry_wait -> leased
-- Leases what this worker has room for at an origin that is not paused; when each request goes out, its turn decides.
-- Only this statement counts attempts; the attempt row is written here, so that a crash leaves a trace. With each task
-- comes what its page was when it was last read, as far as its bytes are still there; what failed, and what is repaired
-- by asking again, is asked for whole. `offset 0`: page by page through the key, however few there once were.
with gate as materialized (
    select p.canary = 'running' as canary
      from scrape.origins o
      join scrape.run_partitions p on p.run_id = %(run_id)s and p.retailer = %(retailer)s
      left join scrape.recovery_batches b on b.recovery_batch_id = p.recovery_batch_id
     where o.origin = %(origin)s
       and (o.paused_until is null or o.paused_until <= clock_timestamp())
       and p.planned_at is not null and p.paused_at is null and p.closing_at is null
       and coalesce(b.manifest_hash, p.manifest_hash) = %(manifest_hash)s
       for update of o
), picked as materialized (
    select t.task_key
      from scrape.tasks t
     where t.run_id = %(run_id)s and t.retailer = %(retailer)s and t.origin = %(origin)s
       and t.state in ('pending', 'retry_wait') and t.from_artifact is null
       and (t.canary or not (select canary from gate))
       and t.next_attempt_at <= (select clock_timestamp())
       and t.attempt_count < t.max_attempts
     order by t.priority desc, t.next_attempt_at
     limit coalesce((select %(wanted)s::integer from gate), 0)
       for update of t skip locked
), claimed as (
    update scrape.tasks t
       set state = 'leased', lease_owner = %(worker_id)s, lease_token = t.lease_token + 1,
           attempt_count = t.attempt_count + 1, attempt_id = gen_random_uuid(),
           lease_started_at = clock_timestamp(),
           lease_until = clock_timestamp() + make_interval(secs => least(%(lease_seconds)s::float8, %(deadline_seconds)s::float8)),
           deadline_at = clock_timestamp() + make_interval(secs => %(deadline_seconds)s)
      from picked
     where t.task_key = picked.task_key
    returning t.task_key, t.url, t.canonical_url, t.context, t.entity, t.page_type, t.attempt_id, t.lease_token,
              t.attempt_count, t.max_attempts, t.rate_limited_count, t.generation,
              t.recovery_batch_id, t.lease_started_at, t.priority, t.discovers, t.depth, t.barren, t.of_pages,
              t.modified_at
), opened as (
    insert into scrape.attempts (attempt_id, task_key, run_id, retailer, lease_token, generation, recovery_batch_id,
                                 worker_id, started_at)
    select attempt_id, task_key, %(run_id)s, %(retailer)s, lease_token, generation, recovery_batch_id, %(worker_id)s,
           lease_started_at
      from claimed
)
-- The few that were tried before are told what went wrong then.
select claimed.*,
       case when claimed.lease_token = 1 then '{}'
            else array(select distinct a.failure_class from scrape.attempts a
                        where a.task_key = claimed.task_key and a.generation = claimed.generation
                          and a.recovery_batch_id is not distinct from claimed.recovery_batch_id
                          and a.failure_class is not null)
       end as earlier_failures,
       known.*
  from claimed
  left join lateral (
       select p.etag, p.last_modified, p.verified_at, p.sha256, f.segment, f.segment_offset, f.length
         from scrape.pages p
         join scrape.artifacts f on f.run_id = p.run_id and f.sha256 = p.sha256
        where p.page_key = scrape.page_key(%(pages_of)s, claimed.context, claimed.page_type, claimed.canonical_url)
          and claimed.attempt_count = 1 and claimed.recovery_batch_id is null
       offset 0) known on true;

-- name: claim_stored :many
-- transition: task pending -> leased
-- transition: task retry_wait -> leased
-- Tasks whose page is stored: no site is asked, so no pause, origin or rate holds them.
with gate as materialized (
    select p.canary = 'running' as canary
      from scrape.run_partitions p
      left join scrape.recovery_batches b on b.recovery_batch_id = p.recovery_batch_id
     where p.run_id = %(run_id)s and p.retailer = %(retailer)s
       and p.planned_at is not null and p.closing_at is null and p.canary <> 'failed'
       and coalesce(b.manifest_hash, p.manifest_hash) = %(manifest_hash)s
), picked as materialized (
    select t.task_key
      from scrape.tasks t
     where t.run_id = %(run_id)s and t.retailer = %(retailer)s
       and t.state in ('pending', 'retry_wait') and t.from_artifact is not null
       and exists (select 1 from gate where t.canary or not gate.canary)
       and t.next_attempt_at <= (select clock_timestamp())
       and t.attempt_count < t.max_attempts
     order by t.priority desc, t.next_attempt_at
     limit %(wanted)s
       for update of t skip locked
), claimed as (
    update scrape.tasks t
       set state = 'leased', lease_owner = %(worker_id)s, lease_token = t.lease_token + 1,
           attempt_count = t.attempt_count + 1, attempt_id = gen_random_uuid(),
           lease_started_at = clock_timestamp(),
           lease_until = clock_timestamp() + make_interval(secs => least(%(lease_seconds)s::float8, %(deadline_seconds)s::float8)),
           deadline_at = clock_timestamp() + make_interval(secs => %(deadline_seconds)s)
      from picked
     where t.task_key = picked.task_key
    returning t.task_key, t.url, t.canonical_url, t.context, t.entity, t.page_type, t.attempt_id, t.lease_token,
              t.attempt_count, t.max_attempts, t.rate_limited_count, t.generation,
              t.recovery_batch_id, t.lease_started_at, t.priority, t.discovers, t.depth, t.barren, t.of_pages,
              t.modified_at, t.from_artifact
), opened as (
    insert into scrape.attempts (attempt_id, task_key, run_id, retailer, lease_token, generation, recovery_batch_id,
                                 worker_id, started_at, from_artifact)
    select attempt_id, task_key, %(run_id)s, %(retailer)s, lease_token, generation, recovery_batch_id, %(worker_id)s,
           lease_started_at, true
      from claimed
)
select c.task_key, c.url, c.canonical_url, c.context, c.entity, c.page_type, c.attempt_id, c.lease_token,
       c.attempt_count, c.max_attempts, c.rate_limited_count, c.generation, c.recovery_batch_id, c.lease_started_at,
       c.priority, c.discovers, c.depth, c.barren, c.of_pages, c.modified_at,
       array(select distinct a.failure_class from scrape.attempts a
              where a.task_key = c.task_key and a.generation = c.generation
                and a.recovery_batch_id is not distinct from c.recovery_batch_id
                and a.failure_class is not null) as earlier_failures,
       c.from_artifact as sha256, f.segment, f.segment_offset, f.length
  from claimed c
  left join scrape.artifacts f on f.run_id = %(run_id)s and f.sha256 = c.from_artifact;

-- name: heartbeat :many
-- transition: task leased -> leased
-- Extends what is still mine, never past the task's own deadline; an attempt that does not come back lost its lease.
-- A stronger lock would wait for, and be waited for by, rows that refer to these tasks. `offset 0`, an owner (a leased
-- task has one, by a constraint) instead of the state, and a last condition outside that says how few rows come of it
-- make the planner go task by task through the key, in the list's order: starting from the index of a state it would
-- read whatever a long run left there, and what it knows of states is as old as the last ANALYZE.
with mine as materialized (
    select * from json_to_recordset(%(leases)s::json) as m (task_key uuid, lease_token bigint, attempt_id uuid)
     order by task_key
), held as materialized (
    select m.task_key
      from mine m
     cross join lateral (
           select t.attempt_id
             from scrape.tasks t
            where t.task_key = m.task_key and t.lease_owner is not null and t.lease_token = m.lease_token
           offset 0
              for no key update) t
     where t.attempt_id = m.attempt_id
)
update scrape.tasks t
   set lease_until = greatest(t.lease_until,
                              least(clock_timestamp() + make_interval(secs => %(lease_seconds)s), t.deadline_at))
  from held
 where t.task_key = held.task_key
returning t.attempt_id;

-- name: reap :many
-- transition: task leased -> pending
-- transition: task leased -> quarantined
-- The only reclaim of an expired lease. A page that spent its budget killing workers ends here. Who reaps is alive
-- and extends what it holds, so on a machine that stands still again and again it must not take that from itself,
-- unless the task is past its deadline. What it owns and does not hold is a claim whose answer is on its way, or lost.
with expired as materialized (
    select t.task_key
      from scrape.tasks t
     where t.state = 'leased' and t.lease_until < (select clock_timestamp())
       and not (t.attempt_id = any(%(held)s::uuid[]) and t.deadline_at > (select clock_timestamp()))
       and (t.lease_owner <> %(worker_id)s
            or t.lease_until < (select clock_timestamp()) - make_interval(secs => %(answer_seconds)s::float8))
     order by t.task_key
     limit 1000
       for update of t skip locked
), moved as (
    update scrape.tasks t
       set state = case when t.attempt_count < t.max_attempts then 'pending' else 'quarantined' end,
           last_failure_class = case when t.attempt_count < t.max_attempts then t.last_failure_class else 'lease_exhausted' end,
           next_attempt_at = clock_timestamp(),
           lease_owner = null, lease_until = null, lease_started_at = null, deadline_at = null
      from expired
     where t.task_key = expired.task_key
    returning t.task_key, t.attempt_id, t.state
), closed as (
    update scrape.attempts a
       set outcome = 'lease_expired', finished_at = clock_timestamp(),
           reason = 'the lease ran out: its worker stopped, or the page outlived it'
      from moved
     where a.attempt_id = moved.attempt_id and a.outcome = 'running'
)
select task_key, state from moved;

-- name: next_due :one
-- Is anything of this partition still open, is it paused, does it wait for the judgement of its canary or for another
-- declaration, does it have stored pages to read, and in how many seconds may the next start?
-- While something is due the origins alone decide; only when all of it waits are the waiting times read.
with partition as materialized (
    select p.paused_at is not null and p.closing_at is null as paused, p.closing_at is null and p.canary <> 'failed' as claimable,
           p.canary = 'running' as canary, coalesce(b.manifest_hash, p.manifest_hash) <> %(manifest_hash)s as other,
           p.origins
      from scrape.run_partitions p
      left join scrape.recovery_batches b on b.recovery_batch_id = p.recovery_batch_id
     where p.run_id = %(run_id)s and p.retailer = %(retailer)s
)
select exists (select 1 from scrape.tasks t
                where t.run_id = %(run_id)s and t.retailer = %(retailer)s
                  and t.state in ('pending', 'retry_wait', 'leased'))
       or exists (select 1 from scrape.frontier f where f.run_id = %(run_id)s and f.retailer = %(retailer)s) as open,
       coalesce((select paused from partition), false) as paused,
       coalesce((select canary from partition), false)
       and not exists (select 1 from scrape.tasks t
                        where t.run_id = %(run_id)s and t.retailer = %(retailer)s and t.canary
                          and t.state in ('pending', 'retry_wait', 'leased')) as canary_over,
       coalesce((select other from partition), false) as other_manifest,
       exists (select 1 from scrape.tasks t, partition
                where t.run_id = %(run_id)s and t.retailer = %(retailer)s
                  and t.state in ('pending', 'retry_wait') and t.from_artifact is not null
                  and partition.claimable and (t.canary or not partition.canary)) as stored,
       coalesce((
           select min(greatest(0, extract(epoch from
                      greatest(coalesce(o.paused_until, due.at), due.at) - clock_timestamp())))
             from scrape.origins o
             join partition on partition.claimable and not partition.paused
            cross join lateral (
                  select case when exists (select 1 from scrape.tasks t
                                            where t.run_id = %(run_id)s and t.retailer = %(retailer)s
                                              and t.origin = o.origin and t.state in ('pending', 'retry_wait')
                                              and t.from_artifact is null and (t.canary or not partition.canary)
                                              and t.next_attempt_at <= (select clock_timestamp()))
                              then clock_timestamp()
                              else (select min(t.next_attempt_at) from scrape.tasks t
                                     where t.run_id = %(run_id)s and t.retailer = %(retailer)s
                                       and t.origin = o.origin and t.state in ('pending', 'retry_wait')
                                       and t.from_artifact is null and (t.canary or not partition.canary))
                         end as at) due
            where o.origin = any(partition.origins) and due.at is not null), 1)::float8 as due_in_seconds,
       coalesce((select origins from partition), '{}') as origins;

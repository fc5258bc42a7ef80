-- name: count_due :one
-- What a delivery would send, or ask a destination about, if it began now.
select count(*) as due
  from scrape.deliveries d
  join scrape.outbox e using (event_id)
  join scrape.runs r using (run_id)
 where r.dataset_id = %(dataset_id)s and d.destination = any(%(destinations)s::text[])
   and ((d.state in ('unsent', 'uncertain') and d.next_try_at <= clock_timestamp())
        or (d.state = 'sending' and d.send_until < clock_timestamp()));

-- name: claim_delivery :maybe
-- transition: delivery unsent -> sending
-- Unsent rows are claimed as they stand, never by "id greater than the last": late commits would be lost.
with due as materialized (
    select d.event_id, d.destination
      from scrape.deliveries d
      join scrape.outbox e using (event_id)
      join scrape.runs r using (run_id)
     where d.state = 'unsent' and d.next_try_at <= (select clock_timestamp())
       and r.dataset_id = %(dataset_id)s and d.destination = any(%(destinations)s::text[])
     order by e.created_at, d.destination
     limit 1
       for update of d skip locked
), taken as (
    update scrape.deliveries d
       set state = 'sending', send_token = d.send_token + 1, tries = d.tries + 1,
           first_try_at = coalesce(d.first_try_at, clock_timestamp()),
           send_until = clock_timestamp() + make_interval(secs => (%(send_seconds)s::jsonb ->> d.destination)::float8)
      from due
     where d.event_id = due.event_id and d.destination = due.destination
    returning d.event_id, d.destination, d.send_token, d.tries, d.idempotency_key, d.first_try_at
)
select taken.event_id, taken.destination, taken.send_token, taken.tries, taken.idempotency_key, e.run_id, e.event_type,
       e.payload, e.created_at, extract(epoch from clock_timestamp() - taken.first_try_at)::float8 as age_seconds
  from taken join scrape.outbox e using (event_id);

-- name: mark_delivered :maybe
-- transition: delivery sending -> delivered
-- Only after the destination has it, and only by the sender that holds the token.
update scrape.deliveries
   set state = 'delivered', delivered_at = clock_timestamp(), receipt = %(receipt)s, send_until = null, last_error = null
 where event_id = %(event_id)s and destination = %(destination)s and state = 'sending' and send_token = %(send_token)s
returning event_id;

-- name: mark_unsent :maybe
-- transition: delivery sending -> unsent
-- Surely not applied: tried again after the delay.
update scrape.deliveries
   set state = 'unsent', send_until = null, last_error = %(error)s,
       next_try_at = clock_timestamp() + make_interval(secs => %(delay_seconds)s)
 where event_id = %(event_id)s and destination = %(destination)s and state = 'sending' and send_token = %(send_token)s
returning event_id;

-- name: go_on_sending :maybe
-- A send that takes longer than was thought is not taken over by another sender.
update scrape.deliveries
   set send_until = greatest(send_until, clock_timestamp() + make_interval(secs => %(seconds)s))
 where event_id = %(event_id)s and destination = %(destination)s and state = 'sending' and send_token = %(send_token)s
returning event_id;

-- name: mark_uncertain :maybe
-- transition: delivery sending -> uncertain
-- The body went out and no clear answer came: the destination is asked, after the delay.
update scrape.deliveries
   set state = 'uncertain', send_until = null, last_error = %(error)s,
       next_try_at = clock_timestamp() + make_interval(secs => %(delay_seconds)s)
 where event_id = %(event_id)s and destination = %(destination)s and state = 'sending' and send_token = %(send_token)s
returning event_id;

-- name: mark_failed :maybe
-- transition: delivery sending -> failed
-- transition: delivery uncertain -> failed
-- A definitive refusal, or three days of trying: a person decides.
update scrape.deliveries
   set state = 'failed', send_until = null, last_error = %(error)s
 where event_id = %(event_id)s and destination = %(destination)s and state in ('sending', 'uncertain')
   and send_token = %(send_token)s
returning event_id;

-- name: ask_again :maybe
-- The destination did not say whether it has the event: it is asked once more, after the delay.
update scrape.deliveries
   set last_error = %(error)s, tries = tries + 1,
       next_try_at = clock_timestamp() + make_interval(secs => %(delay_seconds)s)
 where event_id = %(event_id)s and destination = %(destination)s and state = 'uncertain' and send_token = %(send_token)s
returning event_id;

-- name: disprove :maybe
-- transition: delivery delivered -> failed
-- The destination said that it had the event, and has something else under its key: a person decides.
update scrape.deliveries
   set state = 'failed', delivered_at = null, receipt = null, last_error = %(error)s
 where event_id = %(event_id)s and destination = %(destination)s and state = 'delivered' and send_token = %(send_token)s
returning event_id;

-- name: send_again :many
-- transition: delivery delivered -> unsent
-- transition: delivery failed -> unsent
-- A person, or a destination that has lost it, wants the event once more; under the same key.
update scrape.deliveries d
   set state = 'unsent', delivered_at = null, receipt = null, next_try_at = clock_timestamp(), tries = 0,
       first_try_at = null
  from scrape.outbox e
  join scrape.runs r using (run_id)
 where e.event_id = d.event_id and r.dataset_id = %(dataset_id)s and d.event_id = %(event_id)s
   and d.destination = any(%(destinations)s::text[])
   and d.state in ('delivered', 'failed') and d.state = any(%(states)s::text[])
returning d.event_id, d.destination;

-- name: hurry :many
-- A person does not want to wait for the next try, or for the next question about what is uncertain.
update scrape.deliveries d
   set next_try_at = clock_timestamp(),
       tries = case when d.state = 'unsent' then 0 else d.tries end,
       first_try_at = case when d.state = 'unsent' then null else d.first_try_at end
  from scrape.outbox e
  join scrape.runs r using (run_id)
 where e.event_id = d.event_id and r.dataset_id = %(dataset_id)s and d.event_id = %(event_id)s
   and d.destination = any(%(destinations)s::text[])
   and d.state in ('unsent', 'uncertain')
returning d.event_id, d.destination;

-- name: wake :many
-- What only waited for something that this process has now is due.
update scrape.deliveries d
   set next_try_at = clock_timestamp()
  from scrape.outbox e
  join scrape.runs r using (run_id)
 where e.event_id = d.event_id and r.dataset_id = %(dataset_id)s and d.destination = %(destination)s
   and d.state in ('unsent', 'uncertain') and d.next_try_at > clock_timestamp() and d.last_error = %(error)s
returning d.event_id;

-- name: get_event_deliveries :many
-- What became of one event, destination by destination.
select d.destination, d.state
  from scrape.deliveries d
  join scrape.outbox e using (event_id)
  join scrape.runs r using (run_id)
 where d.event_id = %(event_id)s and r.dataset_id = %(dataset_id)s
 order by d.destination;

-- name: get_delivered :many
-- What the destinations said they have.
select d.event_id, d.destination, d.send_token, d.tries, d.idempotency_key, e.run_id, e.event_type, e.payload, e.created_at,
       0::float8 as age_seconds
  from scrape.deliveries d
  join scrape.outbox e using (event_id)
  join scrape.runs r using (run_id)
 where d.state = 'delivered' and r.dataset_id = %(dataset_id)s and d.destination = any(%(destinations)s::text[])
 order by e.created_at desc
 limit %(at_most)s;

-- name: expire_sending :many
-- transition: delivery sending -> uncertain
-- A sender that stopped in the middle: nobody knows what arrived, so the destination is asked.
with stopped as materialized (
    select event_id, destination
      from scrape.deliveries
     where state = 'sending' and send_until < (select clock_timestamp())
     order by event_id, destination
       for update skip locked
)
update scrape.deliveries d
   set state = 'uncertain', send_until = null, last_error = 'the sender stopped before it knew',
       next_try_at = clock_timestamp()
  from stopped
 where d.event_id = stopped.event_id and d.destination = stopped.destination
returning d.event_id, d.destination;

-- name: stay_idle :one
-- This transaction may wait for a destination for as long as that takes: it only reads.
select set_config('idle_in_transaction_session_timeout', '0', true) as idle;

-- name: get_uncertain :many
select d.event_id, d.destination, d.send_token, d.tries, d.idempotency_key, e.run_id, e.event_type, e.payload, e.created_at,
       extract(epoch from clock_timestamp() - coalesce(d.first_try_at, e.created_at))::float8 as age_seconds
  from scrape.deliveries d
  join scrape.outbox e using (event_id)
  join scrape.runs r using (run_id)
 where d.state = 'uncertain' and d.next_try_at <= clock_timestamp() and r.dataset_id = %(dataset_id)s and d.destination = any(%(destinations)s::text[])
 order by e.created_at;

-- name: settle_uncertain :maybe
-- transition: delivery uncertain -> delivered
-- transition: delivery uncertain -> unsent
-- What the destination answered decides; fenced like every other write.
update scrape.deliveries
   set state = case when %(receipt)s::jsonb is null then 'unsent' else 'delivered' end,
       receipt = %(receipt)s::jsonb,
       delivered_at = case when %(receipt)s::jsonb is null then null else clock_timestamp() end,
       last_error = case when %(receipt)s::jsonb is null then last_error end,
       next_try_at = clock_timestamp()
 where event_id = %(event_id)s and destination = %(destination)s and state = 'uncertain' and send_token = %(send_token)s
returning event_id;

-- name: copy_version :copy
-- One window exactly as a version has it.
copy (
    select p.retailer, p.context, p.entity_key, p.dataset_version, p.change, p.unverified,
           extract(epoch from p.observed_at)::float8, extract(epoch from p.known_at)::float8, p.extractor_version,
           p.payload_hash, p.payload::text
      from scrape.as_of(%(dataset_id)s, %(collection_window)s, %(dataset_version)s) p
     order by p.retailer, p.entity_key, p.context
) to stdout;

-- name: copy_changes :copy
-- What a version changes in the one before: new, corrected and withdrawn rows. The first version is all new.
copy (
    select p.retailer, p.context, p.entity_key, p.dataset_version, p.change, false,
           extract(epoch from p.observed_at)::float8, extract(epoch from d.published_at)::float8, p.extractor_version,
           p.payload_hash, p.payload::text
      from scrape.published_observations p
      join scrape.dataset_candidates d on d.run_id = p.run_id and d.dataset_version = p.dataset_version
     where p.dataset_id = %(dataset_id)s and p.collection_window = %(collection_window)s
       and p.dataset_version = %(dataset_version)s
     order by p.retailer, p.entity_key, p.context
) to stdout;

-- name: copy_withdrawn :copy
-- Rows that this version or an earlier one of the window withdrew, and none gave back: a keyed destination buries them.
copy (
    select p.retailer, p.context, p.entity_key, p.dataset_version, p.change, false,
           extract(epoch from p.observed_at)::float8, extract(epoch from d.published_at)::float8, p.extractor_version,
           p.payload_hash, p.payload::text
      from (select distinct on (observation_key) *
              from scrape.published_observations
             where dataset_id = %(dataset_id)s and collection_window = %(collection_window)s
               and dataset_version <= %(dataset_version)s
             order by observation_key, dataset_version desc) p
      join scrape.dataset_candidates d on d.run_id = p.run_id and d.dataset_version = p.dataset_version
     where p.change = 'withdrawn'
     order by p.retailer, p.entity_key, p.context
) to stdout;

-- name: get_deliveries :many
select d.event_id, d.destination, d.idempotency_key, d.state, d.tries, d.delivered_at, d.receipt, d.last_error, d.next_try_at, e.run_id,
       e.event_type, (e.payload ->> 'dataset_version')::integer as dataset_version, e.created_at
  from scrape.deliveries d
  join scrape.outbox e using (event_id)
 where e.run_id = %(run_id)s
 order by e.created_at, d.destination;

-- name: get_unsettled :many
-- What these destinations do not have yet, or perhaps not, the oldest first.
select d.event_id, d.destination, d.state, d.tries, d.last_error, d.next_try_at, e.run_id,
       (e.payload ->> 'dataset_version')::integer as dataset_version
  from scrape.deliveries d
  join scrape.outbox e using (event_id)
  join scrape.runs r using (run_id)
 where r.dataset_id = %(dataset_id)s and d.destination = any(%(destinations)s::text[]) and d.state <> 'delivered'
 order by e.created_at, d.destination
 limit %(at_most)s;

-- name: list_deliveries :many
-- The newest deliveries of a dataset, those that wait for a person first.
select d.event_id, d.destination, d.state, d.tries, d.delivered_at, d.receipt, d.last_error, d.next_try_at, e.run_id,
       e.event_type, (e.payload ->> 'dataset_version')::integer as dataset_version, e.created_at
  from scrape.deliveries d
  join scrape.outbox e using (event_id)
  join scrape.runs r using (run_id)
 where r.dataset_id = %(dataset_id)s
 order by d.state <> 'failed', d.state = 'delivered', e.created_at desc, d.destination
 limit %(at_most)s;

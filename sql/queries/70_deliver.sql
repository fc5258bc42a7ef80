-- name: count_due :one
-- What a delivery would send, or ask a destination about, if it began now.
select count(*) as due
  from scrape.deliveries d
  join scrape.outbox e using (event_id)
  join scrape.runs r using (run_id)
 where r.dataset_id = %(dataset_id)s and d.destination = any(%(destinations)s::text[])
   and ((d.state = 'unsent' and d.next_try_at <= clock_timestamp()) or d.state = 'uncertain'
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
     order by d.next_try_at
     limit 1
       for update of d skip locked
), taken as (
    update scrape.deliveries d
       set state = 'sending', send_token = d.send_token + 1, tries = d.tries + 1,
           send_until = clock_timestamp() + make_interval(secs => %(send_seconds)s)
      from due
     where d.event_id = due.event_id and d.destination = due.destination
    returning d.event_id, d.destination, d.send_token, d.tries, d.idempotency_key
)
select taken.*, e.run_id, e.payload, e.created_at
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
   set state = 'uncertain', send_until = null, last_error = 'the sender stopped before it knew'
  from stopped
 where d.event_id = stopped.event_id and d.destination = stopped.destination
returning d.event_id, d.destination;

-- name: stay_idle :one
-- This transaction may wait for a destination for as long as that takes: it only reads.
select set_config('idle_in_transaction_session_timeout', '0', true) as idle;

-- name: get_uncertain :many
select d.event_id, d.destination, d.send_token, d.idempotency_key, e.run_id, e.payload
  from scrape.deliveries d
  join scrape.outbox e using (event_id)
  join scrape.runs r using (run_id)
 where d.state = 'uncertain' and r.dataset_id = %(dataset_id)s and d.destination = any(%(destinations)s::text[])
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
-- One version of one window, whole: what a destination receives.
copy (
    select retailer, context, entity_key, extract(epoch from observed_at)::float8, extractor_version, payload::text
      from scrape.published_observations
     where run_id = %(run_id)s and dataset_version = %(dataset_version)s
     order by retailer, entity_key, context
) to stdout;

-- name: get_deliveries :many
select d.destination, d.state, d.tries, d.delivered_at, d.receipt, d.last_error, d.next_try_at, e.run_id,
       (e.payload ->> 'dataset_version')::integer as dataset_version
  from scrape.deliveries d
  join scrape.outbox e using (event_id)
 where e.run_id = %(run_id)s
 order by e.created_at, d.destination;

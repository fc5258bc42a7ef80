-- The state store: runs, their partitions, tasks and attempts, observations, candidates, versions, outbox.
-- Every large table carries run_id and an index that starts with it. CHECK constraints tie states to columns;
-- triggers write state_log; nothing decides here.

create schema if not exists scrape;

create table scrape.runs (
    run_id            text primary key,
    dataset_id        text not null,
    collection_window text not null,
    window_start      timestamptz not null,
    window_end        timestamptz not null,
    created_at        timestamptz not null default clock_timestamp(),
    constraint runs_dataset_window unique (dataset_id, collection_window),
    constraint window_is_half_open check (window_start < window_end)
);

-- The run's scope: one row per retailer, made when the run is; frozen when that retailer is planned.
create table scrape.run_partitions (
    run_id            text not null references scrape.runs,
    retailer          text not null,
    manifest          jsonb,
    manifest_hash     text,
    extractor_version text,
    page_sources      jsonb,
    origins           text[] not null default '{}',
    planned_at        timestamptz,
    planned           bigint not null default 0,
    rejected          bigint not null default 0,
    closing_at        timestamptz,
    paused_at         timestamptz,
    pause_reason      text,
    created_at        timestamptz not null default clock_timestamp(),
    primary key (run_id, retailer),
    constraint planned_iff_frozen check (
        (planned_at is not null) = (manifest is not null and manifest_hash is not null and extractor_version is not null)
    ),
    constraint paused_iff_reason check ((paused_at is null) = (pause_reason is null))
);

-- Inventory lines that could not become tasks: counted above, listed here, never silently dropped.
create table scrape.inventory_rejections (
    run_id   text not null,
    retailer text not null,
    line     bigint not null,
    content  text not null,
    reason   text not null,
    primary key (run_id, retailer, line),
    foreign key (run_id, retailer) references scrape.run_partitions
);

create table scrape.tasks (
    task_key           uuid primary key,
    run_id             text not null,
    retailer           text not null,
    context            text not null default '',
    page_type          text not null,
    url                text not null,
    canonical_url      text not null,
    origin             text not null,
    entity             text,
    state              text not null default 'pending',
    priority           integer not null default 0,
    attempt_count      integer not null default 0,
    max_attempts       integer not null,
    release_count      integer not null default 0,
    rate_limited_count integer not null default 0,
    budget_base_token  bigint not null default 0,
    next_attempt_at    timestamptz not null default clock_timestamp(),
    lease_owner        text,
    lease_until        timestamptz,
    lease_started_at   timestamptz,
    deadline_at        timestamptz,
    lease_token        bigint not null default 0,
    attempt_id         uuid,
    from_artifact      text,
    last_failure_class text,
    recovery_batch_id  uuid,
    generation         integer not null default 1,
    rows_committed     integer,
    foreign key (run_id, retailer) references scrape.run_partitions,
    constraint task_state_known
        check (state in ('pending', 'leased', 'retry_wait', 'committed', 'quarantined', 'gone')),
    constraint leased_iff_lease check (
        (state = 'leased') = (lease_owner is not null and lease_until is not null
                              and lease_started_at is not null and deadline_at is not null)
    ),
    constraint attempts_within_budget check (attempt_count between 0 and max_attempts),
    constraint every_claim_counted check (attempt_count = lease_token - budget_base_token - release_count),
    constraint stopped_has_a_class check (state not in ('quarantined', 'gone') or last_failure_class is not null),
    constraint committed_iff_rows check ((state = 'committed') = (rows_committed is not null))
);

-- What the claim reads: only rows that could be claimed, so leased and finished ones never bloat it.
create index tasks_claimable on scrape.tasks (run_id, retailer, origin, priority desc, next_attempt_at)
    where state in ('pending', 'retry_wait');
-- What the reaper reads.
create index tasks_leased on scrape.tasks (lease_until) where state = 'leased';
-- What closing a partition and its counts read.
create index tasks_of_run on scrape.tasks (run_id, retailer, state);

create table scrape.attempts (
    attempt_id        uuid primary key,
    task_key          uuid not null references scrape.tasks,
    run_id            text not null,
    retailer          text not null,
    lease_token       bigint not null,
    generation        integer not null,
    recovery_batch_id uuid,
    worker_id         text not null,
    started_at        timestamptz not null default clock_timestamp(),
    finished_at       timestamptz,
    outcome           text not null default 'running',
    http_status       integer,
    page_state        text,
    failure_class     text,
    reason            text,
    final_url         text,
    content_type      text,
    artifact_sha256   text,
    extractor_version text,
    constraint one_attempt_per_token unique (task_key, lease_token),
    constraint outcome_known check (
        outcome in ('running', 'committed', 'reverted', 'retry', 'quarantined', 'gone',
                    'lease_expired', 'released', 'fenced')
    ),
    constraint running_iff_unfinished check ((outcome = 'running') = (finished_at is null)),
    constraint failure_has_a_class
        check (outcome not in ('retry', 'quarantined', 'gone') or failure_class is not null)
);

create index attempts_of_run on scrape.attempts (run_id, retailer, outcome);

create table scrape.observations (
    observation_key   uuid primary key,
    run_id            text not null,
    retailer          text not null,
    context           text not null,
    entity_key        text not null,
    collection_window text not null,
    source_task_key   uuid not null references scrape.tasks,
    attempt_id        uuid not null,
    generation        integer not null,
    lease_token       bigint not null,
    validation_state  text not null default 'valid',
    observed_at       timestamptz not null,
    payload           jsonb not null,
    payload_hash      text not null,
    sources           jsonb not null default '{}',
    extractor_version text not null,
    constraint validation_state_known check (validation_state in ('valid', 'reverted')),
    constraint entity_key_bounded check (octet_length(entity_key) <= 512)
);

create index observations_of_run on scrape.observations (run_id, retailer);
create index observations_of_task on scrape.observations (source_task_key);

-- Two tasks, one entity: the row that did not win, kept for the check that counts them.
create table scrape.observation_collisions (
    observation_key   uuid not null,
    source_task_key   uuid not null references scrape.tasks,
    run_id            text not null,
    retailer          text not null,
    context           text not null,
    entity_key        text not null,
    collection_window text not null,
    attempt_id        uuid not null,
    generation        integer not null,
    lease_token       bigint not null,
    validation_state  text not null,
    observed_at       timestamptz not null,
    payload           jsonb not null,
    payload_hash      text not null,
    sources           jsonb not null,
    extractor_version text not null,
    recorded_at       timestamptz not null default clock_timestamp(),
    primary key (observation_key, source_task_key)
);

create index observation_collisions_of_run on scrape.observation_collisions (run_id, retailer);

create table scrape.candidates (
    run_id       text not null,
    retailer     text not null,
    generation   integer not null,
    state        text not null default 'collecting',
    verdict      jsonb,
    content_hash text,
    created_at   timestamptz not null default clock_timestamp(),
    decided_at   timestamptz,
    primary key (run_id, retailer, generation),
    foreign key (run_id, retailer) references scrape.run_partitions,
    constraint candidate_state_known check (state in ('collecting', 'candidate', 'accepted', 'rejected')),
    constraint decided_iff_verdict check (
        (state in ('accepted', 'rejected')) = (verdict is not null and decided_at is not null and content_hash is not null)
    )
);

create table scrape.dataset_candidates (
    run_id          text not null references scrape.runs,
    sequence        integer not null,
    state           text not null default 'candidate',
    members         jsonb not null,
    verdict         jsonb,
    content_hash    text not null,
    dataset_version integer,
    created_at      timestamptz not null default clock_timestamp(),
    decided_at      timestamptz,
    published_at    timestamptz,
    primary key (run_id, sequence),
    constraint one_row_per_version unique (run_id, dataset_version),
    constraint dataset_candidate_state_known check (state in ('candidate', 'accepted', 'rejected', 'published')),
    constraint dataset_decided_iff_verdict
        check ((state = 'candidate') = (verdict is null and decided_at is null)),
    constraint published_iff_version
        check ((state = 'published') = (dataset_version is not null and published_at is not null))
);

-- Every judgement ever made, appended; the candidate rows carry the latest.
create table scrape.verdicts (
    verdict_id   bigint generated always as identity primary key,
    run_id       text not null references scrape.runs,
    retailer     text,
    generation   integer,
    sequence     integer,
    accepted     boolean not null,
    content_hash text not null,
    checks       jsonb not null,
    judged_at    timestamptz not null default clock_timestamp(),
    constraint judges_one_candidate check ((retailer is null) = (generation is null) and (retailer is null) = (sequence is not null))
);

create index verdicts_of_run on scrape.verdicts (run_id);

create table scrape.published_observations (
    dataset_id         text not null,
    collection_window  text not null,
    dataset_version    integer not null,
    retailer           text not null,
    context            text not null,
    observation_key    uuid not null,
    entity_key         text not null,
    observed_at        timestamptz not null,
    extractor_version  text not null,
    payload            jsonb not null,
    payload_hash       text not null,
    change             text not null,
    supersedes_version integer,
    recovery_batch_id  uuid,
    run_id             text not null references scrape.runs,
    primary key (dataset_id, collection_window, dataset_version, observation_key),
    constraint change_known check (change in ('new', 'corrected', 'withdrawn')),
    constraint corrections_supersede check ((change = 'new') = (supersedes_version is null))
);

create index published_observations_of_run on scrape.published_observations (run_id, dataset_version);

create table scrape.latest_observations (
    dataset_id        text not null,
    entity_key        text not null,
    context           text not null,
    observation_key   uuid not null,
    retailer          text not null,
    collection_window text not null,
    window_end        timestamptz not null,
    dataset_version   integer not null,
    observed_at       timestamptz not null,
    payload           jsonb not null,
    payload_hash      text not null,
    primary key (dataset_id, entity_key, context)
);

create table scrape.outbox (
    event_id   uuid primary key,
    run_id     text not null references scrape.runs,
    event_type text not null,
    payload    jsonb not null,
    created_at timestamptz not null default clock_timestamp(),
    constraint event_type_known check (event_type in ('dataset.published'))
);

create unique index outbox_one_event_per_version
    on scrape.outbox (run_id, ((payload ->> 'dataset_version')::integer)) where event_type = 'dataset.published';

create table scrape.deliveries (
    event_id        uuid not null references scrape.outbox,
    destination     text not null,
    state           text not null default 'unsent',
    send_token      bigint not null default 0,
    send_until      timestamptz,
    next_try_at     timestamptz not null default clock_timestamp(),
    tries           integer not null default 0,
    delivered_at    timestamptz,
    receipt         jsonb,
    last_error      text,
    idempotency_key text not null,
    primary key (event_id, destination),
    constraint delivery_state_known check (state in ('unsent', 'sending', 'delivered', 'uncertain')),
    constraint sending_iff_bounded check ((state = 'sending') = (send_until is not null)),
    constraint delivered_iff_receipt check ((state = 'delivered') = (delivered_at is not null and receipt is not null)),
    constraint one_idempotency_key unique (destination, idempotency_key)
);

create index deliveries_due on scrape.deliveries (next_try_at) where state in ('unsent', 'sending', 'uncertain');

-- One row per scheme, host and port: what all workers together may ask of it.
create table scrape.origins (
    origin           text primary key,
    interval_seconds double precision not null default 0,
    next_start_at    timestamptz not null default clock_timestamp(),
    paused_until     timestamptz,
    pause_reason     text,
    constraint interval_not_negative check (interval_seconds >= 0),
    constraint origin_paused_iff_reason check ((paused_until is null) = (pause_reason is null))
);

create table scrape.artifacts (
    run_id         text not null references scrape.runs,
    sha256         text not null,
    retailer       text not null,
    segment        text not null,
    segment_offset bigint not null,
    length         bigint not null,
    body_bytes     bigint not null,
    created_at     timestamptz not null default clock_timestamp(),
    primary key (run_id, sha256)
);

create table scrape.state_log (
    id        bigint generated always as identity primary key,
    kind      text not null,
    key       text not null,
    run_id    text not null,
    old_state text,
    new_state text not null,
    token     bigint,
    at        timestamptz not null default clock_timestamp(),
    txid      xid8 not null default pg_current_xact_id()
);

create index state_log_of_key on scrape.state_log (kind, key, id);

-- Statement-level triggers with transition tables: one insert per statement, however many tasks it moves.
create function scrape.log_new_tasks() returns trigger language plpgsql as $$
begin
    insert into scrape.state_log (kind, key, run_id, old_state, new_state, token)
    select 'task', n.task_key::text, n.run_id, null, n.state, n.lease_token from new_rows n;
    return null;
end $$;

create function scrape.log_task_moves() returns trigger language plpgsql as $$
begin
    insert into scrape.state_log (kind, key, run_id, old_state, new_state, token)
    select 'task', n.task_key::text, n.run_id, o.state, n.state, n.lease_token
      from new_rows n join old_rows o using (task_key)
     where o.state <> n.state;
    return null;
end $$;

create trigger log_new_tasks after insert on scrape.tasks
    referencing new table as new_rows for each statement execute function scrape.log_new_tasks();
create trigger log_task_moves after update on scrape.tasks
    referencing old table as old_rows new table as new_rows for each statement execute function scrape.log_task_moves();

-- Candidates, dataset candidates and deliveries move one at a time: a row trigger is enough.
create function scrape.log_move() returns trigger language plpgsql as $$
declare
    moved jsonb := to_jsonb(new);
    run text := coalesce(moved ->> 'run_id', (select o.run_id from scrape.outbox o where o.event_id = (moved ->> 'event_id')::uuid));
begin
    if tg_op = 'INSERT' or (to_jsonb(old) ->> 'state') is distinct from (moved ->> 'state') then
        insert into scrape.state_log (kind, key, run_id, old_state, new_state, token)
        values (
            tg_argv[0],
            concat_ws('/', moved ->> 'run_id', moved ->> 'retailer', moved ->> 'generation', moved ->> 'sequence',
                      moved ->> 'event_id', moved ->> 'destination'),
            run,
            case when tg_op = 'UPDATE' then to_jsonb(old) ->> 'state' end,
            moved ->> 'state',
            (moved ->> 'send_token')::bigint
        );
    end if;
    return null;
end $$;

create trigger log_candidates after insert or update on scrape.candidates
    for each row execute function scrape.log_move('candidate');
create trigger log_dataset_candidates after insert or update on scrape.dataset_candidates
    for each row execute function scrape.log_move('dataset_candidate');
create trigger log_deliveries after insert or update on scrape.deliveries
    for each row execute function scrape.log_move('delivery');

-- A published row is never changed: a correction is another version.
create function scrape.refuse_update() returns trigger language plpgsql as $$
begin
    raise exception 'rows of % are append-only; publish a correction as a new version', tg_table_name;
end $$;

create trigger published_is_append_only before update on scrape.published_observations
    for each row execute function scrape.refuse_update();

-- Whoever overwrites another task's row keeps that row as a collision, in the same statement's transaction:
-- a reader before the upsert could miss a row that is committed while it waits.
create function scrape.keep_collision() returns trigger language plpgsql as $$
begin
    insert into scrape.observation_collisions (
        observation_key, source_task_key, run_id, retailer, context, entity_key, collection_window, attempt_id,
        generation, lease_token, validation_state, observed_at, payload, payload_hash, sources, extractor_version)
    values (
        old.observation_key, old.source_task_key, old.run_id, old.retailer, old.context, old.entity_key,
        old.collection_window, old.attempt_id, old.generation, old.lease_token, old.validation_state, old.observed_at,
        old.payload, old.payload_hash, old.sources, old.extractor_version)
    on conflict (observation_key, source_task_key) do update set
        attempt_id = excluded.attempt_id, generation = excluded.generation, lease_token = excluded.lease_token,
        validation_state = excluded.validation_state, observed_at = excluded.observed_at, payload = excluded.payload,
        payload_hash = excluded.payload_hash, sources = excluded.sources, extractor_version = excluded.extractor_version,
        recorded_at = clock_timestamp();
    return new;
end $$;

create trigger keep_collision before update on scrape.observations
    for each row when (old.source_task_key <> new.source_task_key) execute function scrape.keep_collision();

-- Queue tables are updated in place all day: vacuum them by dead rows, not by a fifth of the table.
alter table scrape.tasks set (
    fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000,
    autovacuum_analyze_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
alter table scrape.attempts set (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);

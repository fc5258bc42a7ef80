-- squawk-ignore-file constraint-missing-not-valid, ban-drop-constraint, adding-foreign-key-constraint, require-concurrent-index-deletion
-- Recovery batches, canaries, waivers, corrections of what was published, and deliveries that a person must decide.

-- One repair of one retailer under its original run: what it selected, and the declaration that it works with.
create table scrape.recovery_batches (
    recovery_batch_id uuid primary key,
    run_id            text not null,
    retailer          text not null,
    generation        integer not null,
    manifest          jsonb not null,
    manifest_hash     text not null,
    extractor_version text not null,
    page_sources      jsonb not null,
    selection         jsonb not null,
    selected          bigint not null default 0,
    joined            bigint not null default 0,
    from_artifacts    bigint not null default 0,
    created_at        timestamptz not null default clock_timestamp(),
    foreign key (run_id, retailer) references scrape.run_partitions
);

create index recovery_batches_of_run on scrape.recovery_batches (run_id, retailer, created_at);

-- The batch whose declaration the partition's open tasks work with; null: the one it was planned with.
alter table scrape.run_partitions
    add column recovery_batch_id uuid references scrape.recovery_batches,
    add column canary text not null default 'none',
    add column canary_checks jsonb,
    add constraint canary_known check (canary in ('none', 'running', 'passed', 'failed')),
    add constraint canary_judged check ((canary in ('passed', 'failed')) = (canary_checks is not null));

alter table scrape.tasks
    add column canary boolean not null default false;

alter table scrape.attempts
    add column from_artifact boolean not null default false;

-- Stored pages need no site: they are claimed without a look at any origin, and stand in no other claim's way.
drop index scrape.tasks_claimable;
create index tasks_claimable on scrape.tasks (run_id, retailer, origin, priority desc, next_attempt_at)
    where state in ('pending', 'retry_wait') and from_artifact is null;
create index tasks_stored on scrape.tasks (run_id, retailer, priority desc, next_attempt_at)
    where state in ('pending', 'retry_wait') and from_artifact is not null;

create index tasks_of_batch on scrape.tasks (recovery_batch_id) where recovery_batch_id is not null;
create index attempts_of_batch on scrape.attempts (recovery_batch_id) where recovery_batch_id is not null;

alter table scrape.candidates
    drop constraint candidate_state_known,
    add constraint candidate_state_known
        check (state in ('collecting', 'candidate', 'accepted', 'rejected', 'replaced')),
    drop constraint decided_iff_verdict,
    add constraint decided_iff_verdict check (
        case when state in ('accepted', 'rejected') then verdict is not null and decided_at is not null and content_hash is not null
             when state = 'replaced' then true
             else verdict is null and decided_at is null
        end
    );

-- `publication`: what the version holds of each retailer, and how many of its rows are new, corrected, withdrawn.
alter table scrape.dataset_candidates
    add column publication jsonb,
    drop constraint dataset_candidate_state_known,
    add constraint dataset_candidate_state_known
        check (state in ('candidate', 'accepted', 'rejected', 'published', 'superseded')),
    drop constraint published_iff_version,
    add constraint published_iff_version
        check ((state in ('published', 'superseded')) = (dataset_version is not null and published_at is not null));

create unique index dataset_candidates_one_stands on scrape.dataset_candidates (run_id) where state = 'published';

-- What was published before there were corrections holds its members' rows as they were accepted.
update scrape.dataset_candidates d
   set publication = jsonb_build_object(
           'rows', (select count(*) from scrape.published_observations p
                     where p.run_id = d.run_id and p.dataset_version = d.dataset_version),
           'retailers', (select jsonb_object_agg(m ->> 'retailer', jsonb_build_object(
                                    'rows', m -> 'rows', 'content_hash', m -> 'content_hash', 'unverified', 0))
                           from jsonb_array_elements(d.members) as m))
 where d.state = 'published';

alter table scrape.published_observations
    add constraint published_observations_batch foreign key (recovery_batch_id) references scrape.recovery_batches;
create index published_observations_of_entity on scrape.published_observations (dataset_id, entity_key, context);
create index published_observations_of_key
    on scrape.published_observations (dataset_id, collection_window, observation_key, dataset_version desc);

-- Rows that a version keeps from the one before, because their page could not be read again.
create table scrape.carried_observations (
    run_id          text not null references scrape.runs,
    dataset_version integer not null,
    observation_key uuid not null,
    reason          text not null,
    primary key (run_id, dataset_version, observation_key)
);

-- A person takes the responsibility for one failing rule of one run, until then.
create table scrape.waivers (
    waiver_id  uuid primary key,
    run_id     text not null references scrape.runs,
    retailer   text,
    rule       text not null,
    owner      text not null,
    reason     text not null,
    until      timestamptz not null,
    created_at timestamptz not null default clock_timestamp(),
    constraint waived_by_somebody check (owner <> '' and reason <> '')
);

create index waivers_of_run on scrape.waivers (run_id);

alter table scrape.outbox
    drop constraint event_type_known,
    add constraint event_type_known check (event_type in ('dataset.published', 'dataset.late'));
create unique index outbox_late_once on scrape.outbox (run_id) where event_type = 'dataset.late';

-- `first_try_at`: since when this series of tries goes on; a person who sends again begins another.
alter table scrape.deliveries
    add column first_try_at timestamptz,
    drop constraint delivery_state_known,
    add constraint delivery_state_known check (state in ('unsent', 'sending', 'delivered', 'uncertain', 'failed')),
    add constraint failed_iff_error check (state <> 'failed' or last_error is not null);

-- The last lock before anything is published: a version takes rows from accepted members alone, whoever asks.
create function scrape.refuse_unaccepted() returns trigger language plpgsql as $$
declare
    bad record;
begin
    select n.retailer, c.state into bad
      from (select distinct run_id, retailer from new_rows) n
      left join lateral (
           select state from scrape.candidates c
            where c.run_id = n.run_id and c.retailer = n.retailer
            order by generation desc
            limit 1) c on true
     where c.state is distinct from 'accepted'
     limit 1;
    if found then
        raise exception 'rows of % cannot be published: its candidate is %, not accepted', bad.retailer, coalesce(bad.state, 'missing')
            using errcode = 'check_violation';
    end if;
    if exists (select from new_rows n
                where n.change <> 'withdrawn'
                  and not exists (select from scrape.observations o
                                    join scrape.tasks t on t.task_key = o.source_task_key
                                   where o.observation_key = n.observation_key and o.payload_hash = n.payload_hash
                                     and o.validation_state = 'valid' and t.state = 'committed')) then
        raise exception 'a row that no committed page gives cannot be published' using errcode = 'check_violation';
    end if;
    return null;
end $$;

create trigger only_accepted_is_published after insert on scrape.published_observations
    referencing new table as new_rows for each statement execute function scrape.refuse_unaccepted();

-- Every published row with the versions it holds for: from `from_version` until before `until_version`.
-- `known_at` is when it was published, `observed_at` when the page was seen.
create view scrape.published_history as
select p.dataset_id, p.collection_window, p.retailer, p.context, p.entity_key, p.observation_key,
       p.dataset_version as from_version,
       lead(p.dataset_version) over (partition by p.dataset_id, p.collection_window, p.observation_key
                                     order by p.dataset_version) as until_version,
       p.change, p.supersedes_version, p.observed_at, d.published_at as known_at, p.extractor_version, p.payload,
       p.payload_hash, p.recovery_batch_id, p.run_id
  from scrape.published_observations p
  join scrape.dataset_candidates d on d.run_id = p.run_id and d.dataset_version = p.dataset_version;

-- One window exactly as its version `at_version` had it.
create function scrape.as_of(of_dataset text, of_window text, at_version integer)
    returns table (
        dataset_id text, collection_window text, retailer text, context text, entity_key text, observation_key uuid,
        dataset_version integer, change text, observed_at timestamptz, known_at timestamptz, extractor_version text,
        payload jsonb, payload_hash text, unverified boolean)
    language sql stable as $$
    select p.dataset_id, p.collection_window, p.retailer, p.context, p.entity_key, p.observation_key,
           p.dataset_version, p.change, p.observed_at, d.published_at, p.extractor_version, p.payload, p.payload_hash,
           exists (select from scrape.carried_observations c
                    where c.run_id = p.run_id and c.dataset_version = at_version
                      and c.observation_key = p.observation_key)
      from (select distinct on (observation_key) *
              from scrape.published_observations
             where dataset_id = of_dataset and collection_window = of_window and dataset_version <= at_version
             order by observation_key, dataset_version desc) p
      join scrape.dataset_candidates d on d.run_id = p.run_id and d.dataset_version = p.dataset_version
     where p.change <> 'withdrawn'
$$;

-- The newest published row of every entity, over all windows.
create view scrape.latest as
select l.dataset_id, l.retailer, l.context, l.entity_key, l.collection_window, l.window_end, l.dataset_version,
       l.observed_at, d.published_at as known_at, l.payload, l.payload_hash
  from scrape.latest_observations l
  join scrape.runs r on r.dataset_id = l.dataset_id and r.collection_window = l.collection_window
  join scrape.dataset_candidates d on d.run_id = r.run_id and d.dataset_version = l.dataset_version;

-- What `why`, and a person who looks into the database, asks of one run.
create index state_log_of_run on scrape.state_log (run_id, id);

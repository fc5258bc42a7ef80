-- When a partition ends without having all of its pages: its deadline, or a site that refuses.
alter table scrape.run_partitions
    add column deadline_at timestamptz,
    add column stopped_at timestamptz,
    add column resumed_at timestamptz;

-- The newest attempts of a partition, by which a retailer that refuses is stopped.
create index attempts_ended on scrape.attempts (run_id, retailer, finished_at desc) where finished_at is not null;

-- What the closing step reads: few partitions collect at one time, however many there are.
create index candidates_collecting on scrape.candidates (run_id, retailer) where state = 'collecting';

-- What a task that gives fewer rows than before looks for.
create index observation_collisions_of_task on scrape.observation_collisions (source_task_key);

-- What was planned before there were deadlines ends too.
update scrape.run_partitions p
   set deadline_at = greatest(r.window_end, p.planned_at) + (r.window_end - r.window_start)
  from scrape.runs r
 where r.run_id = p.run_id and p.planned_at is not null;

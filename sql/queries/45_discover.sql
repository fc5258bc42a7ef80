-- name: try_lock_partition :maybe
-- Whoever lets pages in from the frontier holds it: a commit that names one of them could not see it go.
select retailer
  from scrape.run_partitions
 where run_id = %(run_id)s and retailer = %(retailer)s
   for no key update skip locked;

-- name: forget_links :none
-- The page is read again: what it named before it may not name any more.
update scrape.links
   set current = false
 where run_id = %(run_id)s and parent_key = %(parent)s and current;

-- name: add_children :one
-- What a page names waits in the frontier, once; `fresh`: how many items no page before it in its own list has named.
-- One that is still to be read again has named nothing. The page's commit is the only one that writes them, under the
-- lock of its partition.
with found as materialized (
    select * from json_to_recordset(%(children)s::json) as f (
        task_key uuid, page_type text, discovers boolean, url text, canonical_url text, origin text, entity text,
        depth integer, barren integer, of_pages integer, position integer, modified_at timestamptz)
), parent as materialized (
    select * from scrape.tasks where task_key = %(parent)s
), waiting as (
    insert into scrape.frontier (task_key, run_id, retailer, context, page_type, discovers, url, canonical_url, origin,
                                 entity, priority, depth, barren, of_pages, max_attempts, generation, recovery_batch_id,
                                 modified_at)
    select f.task_key, p.run_id, p.retailer, p.context, f.page_type, f.discovers, f.url, f.canonical_url, f.origin,
           f.entity, p.priority, f.depth, f.barren, coalesce(f.of_pages, 0), %(max_attempts)s, p.generation,
           p.recovery_batch_id, f.modified_at
      from found f cross join parent p
     where not exists (select from scrape.tasks t where t.task_key = f.task_key)
     order by f.task_key
    on conflict do nothing
    returning discovers, origin
), linked as (
    insert into scrape.links (run_id, retailer, parent_key, child_key, position)
    select p.run_id, p.retailer, p.task_key, f.task_key, f.position
      from found f cross join parent p
     order by f.task_key
    on conflict (run_id, parent_key, child_key) do update set current = true, position = excluded.position
), counted as (
    update scrape.run_partitions r
       set planned = r.planned + (select count(*) from waiting),
           origins = array(select distinct unnest(r.origins || array(select origin from waiting)) order by 1)
      from parent p
     where r.run_id = p.run_id and r.retailer = p.retailer and exists (select from waiting)
)
select (select count(*)
          from found f cross join parent p
         where not f.discovers
           and not exists (select from scrape.links l join scrape.tasks other on other.task_key = l.parent_key
                            where l.run_id = p.run_id and l.child_key = f.task_key and l.parent_key <> p.task_key
                              and l.current and other.state = 'committed' and other.depth < p.depth
                              and other.page_type = p.page_type and other.context = p.context
                              and coalesce(other.entity, other.canonical_url) = coalesce(p.entity, p.canonical_url))) as fresh,
       array(select distinct origin from waiting order by origin) as origins;

-- name: named_elsewhere :maybe
-- The page before this one that named that page already: a chain that comes back to itself. A first page was named by
-- the declaration.
select t.canonical_url
  from scrape.links l
  join scrape.tasks t on t.task_key = l.parent_key
  join scrape.tasks p on p.task_key = %(parent)s
 where l.run_id = %(run_id)s and l.child_key = %(child)s and l.parent_key <> %(parent)s
   and l.current and t.state = 'committed' and t.depth < p.depth
union all
select 'the declaration' as canonical_url
  from scrape.tasks t
 where t.task_key = %(child)s and t.depth = 0
 limit 1;

-- name: set_discovery_problem :none
-- The first one stands until the page is read again.
update scrape.tasks
   set problem = coalesce(problem, %(problem)s)
 where task_key = %(parent)s;

-- name: admit :one
-- transition: task - -> pending
-- What waits becomes tasks, as far as its origin has room: pages that name others first, so that what there is is
-- known early. One statement: nothing of it is ever in both places, or in none.
with room as materialized (
    select f.origin,
           %(open)s - (select count(*) from scrape.tasks t
                        where t.run_id = %(run_id)s and t.retailer = %(retailer)s and t.origin = f.origin
                          and t.state in ('pending', 'retry_wait', 'leased')) as free
      from (select distinct origin from scrape.frontier
             where run_id = %(run_id)s and retailer = %(retailer)s) f
), picked as materialized (
    select w.*
      from room r
     cross join lateral (
           select f.*
             from scrape.frontier f
            where f.run_id = %(run_id)s and f.retailer = %(retailer)s and f.origin = r.origin
            order by f.discovers desc, f.found_at
            limit greatest(0, r.free)
              for update skip locked) w
), gone as (
    delete from scrape.frontier f using picked p where f.task_key = p.task_key
), admitted as (
    insert into scrape.tasks (task_key, run_id, retailer, context, page_type, discovers, depth, barren, of_pages, url,
                              canonical_url, origin, entity, priority, max_attempts, generation, recovery_batch_id,
                              modified_at)
    select task_key, run_id, retailer, context, page_type, discovers, depth, barren, of_pages, url, canonical_url, origin,
           entity,
           priority, max_attempts, generation, recovery_batch_id, modified_at
      from picked
     order by task_key
    on conflict (task_key) do nothing
    returning 1
)
select count(*) as admitted from admitted;

-- name: frontier_of_run :many
-- What waits for room, by retailer and origin, and for how long the oldest has.
select retailer, origin, count(*) as pages,
       extract(epoch from clock_timestamp() - min(found_at))::float8 as oldest_seconds
  from scrape.frontier
 where run_id = %(run_id)s
 group by retailer, origin
 order by retailer, origin;

-- name: count_addresses :one
select count(distinct t.canonical_url) as addresses
  from scrape.tasks t
 where t.run_id = %(run_id)s and t.retailer = %(retailer)s and not t.discovers;

-- name: discovery_of_retailer :one
-- How far the pages that name others came, how many items they named, and what two passes over a list saw of it.
select count(*) filter (where t.discovers) as pages,
       count(*) filter (where t.discovers and t.state = 'committed') as read,
       count(*) filter (where not t.discovers) as items,
       min(t.problem) as problem,
       (select count(distinct l.child_key)
          from scrape.links l
          join scrape.tasks parent on parent.task_key = l.parent_key and l.current
          join scrape.tasks child on child.task_key = l.child_key
         where l.run_id = %(run_id)s and l.retailer = %(retailer)s and parent.page_type in ('listing-1', 'offset-1') and not child.discovers)
         as first_pass,
       (select count(distinct l.child_key)
          from scrape.links l
          join scrape.tasks parent on parent.task_key = l.parent_key and l.current
          join scrape.tasks child on child.task_key = l.child_key
         where l.run_id = %(run_id)s and l.retailer = %(retailer)s and parent.page_type in ('listing-2', 'offset-2') and not child.discovers)
         as second_pass,
       (select count(*)
          from (select l.child_key
                  from scrape.links l
                  join scrape.tasks parent on parent.task_key = l.parent_key and l.current
                  join scrape.tasks child on child.task_key = l.child_key
                 where l.run_id = %(run_id)s and l.retailer = %(retailer)s
                   and parent.page_type ~ '^(listing|offset)-[12]$' and not child.discovers
                 group by l.child_key
                having count(distinct parent.page_type) = 2) b) as both_passes
  from scrape.run_partitions p
  left join scrape.tasks t using (run_id, retailer)
 where p.run_id = %(run_id)s and p.retailer = %(retailer)s;

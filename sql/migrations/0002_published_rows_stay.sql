-- A published row is neither changed nor taken away: what was delivered can always be looked up.
create trigger published_is_never_deleted before delete on scrape.published_observations
    for each row execute function scrape.refuse_update();

-- Resets the search path that 1_begin.sql set.
do $$ begin
    perform set_config('search_path', current_setting('tally.search_path'), false);
end $$;

-- Creates the logins of server, workers, reports and operators, each with its role. A login that
-- exists gets this password. Run it as the owner, after `tally migrate`:
--   SERVER_PASSWORD=… WORKER_PASSWORD=… REPORT_PASSWORD=… OPERATOR_PASSWORD=… psql … --file scripts/logins.sql
\set ON_ERROR_STOP on

-- Keeps the statements, which have the passwords, out of the log.
do $$ begin
    perform set_config('log_statement', 'none', false), set_config('log_min_duration_statement', '-1', false),
            set_config('log_min_error_statement', 'panic', false);
exception when insufficient_privilege then
    raise warning 'only a superuser can keep statements out of the log: if Postgres logs them, it logs the passwords';
end $$;

-- psql has getenv only since version 15, so printenv reads the variables. An unset one reads empty.
\set server_password `printenv SERVER_PASSWORD`
\set worker_password `printenv WORKER_PASSWORD`
\set report_password `printenv REPORT_PASSWORD`
\set operator_password `printenv OPERATOR_PASSWORD`
select '' in (:'server_password', :'worker_password', :'report_password', :'operator_password') as is_missing \gset
\if :is_missing
do $$ begin raise 'set SERVER_PASSWORD, WORKER_PASSWORD, REPORT_PASSWORD and OPERATOR_PASSWORD'; end $$;
\endif

select format('create role %I login in role %I', login, role)
from (values ('server', 'tally_server'), ('worker', 'tally_worker'), ('report', 'tally_report'),
             ('operator', 'tally_operator'))
     as wanted (login, role)
where not exists (select from pg_roles where rolname = login)
\gexec
alter role server password :'server_password';
alter role worker password :'worker_password';
alter role report password :'report_password';
alter role operator password :'operator_password';

-- May this login write to the tables of jobs? With roles, only the schema's owner and admins may.
select
    has_table_privilege(regclass('pgjq.body'), 'insert') and has_table_privilege(regclass('pgjq.job'), 'insert')
    and has_table_privilege(regclass('pgjq.bulk_body'), 'insert') as may_write

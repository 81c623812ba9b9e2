-- Empty what JDBC has written.
truncate one_table_queue, one_table_heap

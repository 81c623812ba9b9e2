-- Reserve :count numbers, in the order in which the jobs of this transaction are to run; create the queue if it does
-- not exist.
select pgjq.reserve_numbers(:queue::text, :count::integer) as seqs

-- Delete a schedule; its jobs stay.
select d.deleted from pgjq.delete_schedule(:name::text) as d (deleted)

-- Begin an action: write it down before it is taken.
select pgjq.begin_action(:actor::text, :action::text, :queue::text, :ids::text[]) as id

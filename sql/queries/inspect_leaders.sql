-- Inspect leaders: the session that leads in each role.
select l.role, l.pid::text, host(l.client_addr), l.session_since
from pgjq.leaders as l
order by l.role

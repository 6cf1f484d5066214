#include "worker/daemon/client_fds.h"

#include <unistd.h>

#include "proto/task/task_wire.h"

static void replace(int *fd, int next)
{
    if (*fd >= 0)
        close(*fd);
    *fd = next;
}

/* Return the link of a connection, or a free entry if connection_id is 0. NULL: none. */
static client_link *link_find(client_fds *fds, uint64_t connection_id)
{
    for (int i = 0; i < CLIENT_LINKS_MAX; i++)
        if (fds->links[i].connection_id == connection_id)
            return &fds->links[i];
    return NULL;
}

void client_fds_init(client_fds *fds)
{
    for (int i = 0; i < CLIENT_LINKS_MAX; i++)
        fds->links[i] = (client_link){ .segment = -1, .wakeup_fd = -1 };
    fds->weights_socket = 0;
    fds->weights = -1;
}

bool client_fds_keep(client_fds *fds, const gp_control_socket_event *event)
{
    client_link *link;

    if (event->request.what == GP_CONTROL_SOCKET_WEIGHTS) {
        fds->weights_socket = event->id;
        replace(&fds->weights, event->fd);
        return true;
    }
    link = link_find(fds, event->id);
    if (link == NULL)
        link = link_find(fds, 0);
    if (link == NULL)
        return false;
    link->connection_id = event->id;
    replace(event->request.what == GP_CONTROL_SOCKET_SEGMENT ? &link->segment : &link->wakeup_fd, event->fd);
    return true;
}

void client_fds_hangup(client_fds *fds, uint64_t connection_id)
{
    client_link *link = link_find(fds, connection_id);

    if (link != NULL)
        client_link_close(link);
    if (fds->weights_socket == connection_id)
        fds->weights_socket = 0;
}

void client_fds_drop(client_fds *fds)
{
    for (int i = 0; i < CLIENT_LINKS_MAX; i++)
        client_link_close(&fds->links[i]);
    fds->weights_socket = 0;
    replace(&fds->weights, -1);
}

client_link *client_fds_link(client_fds *fds)
{
    for (int i = 0; i < CLIENT_LINKS_MAX; i++)
        if (fds->links[i].segment >= 0 && fds->links[i].wakeup_fd >= 0)
            return &fds->links[i];
    return NULL;
}

void client_link_close(client_link *link)
{
    link->connection_id = 0;
    replace(&link->segment, -1);
    replace(&link->wakeup_fd, -1);
}

/* pool_weights.c: exchange weights with a leased worker, as sealed descriptors over the worker's
 * control socket.
 *
 *   client: GP_CONTROL_SOCKET_WEIGHTS with a memfd, then train_begin or predict_begin ---> worker
 *   worker: GP_CONTROL_SOCKET_WEIGHTS with a memfd, then train_done                   ---> client
 *
 * The message itself carries the weight size in a payload of 8 bytes. Thus only memory limits the
 * size, and the weights are copied once: into the memfd, which every receiver maps. */
#include <inttypes.h>
#include <unistd.h>

#include "client/pool/pool.h"
#include "common/base/system/seal.h"
#include "proto/task/task_wire.h"

gp_status pool_send_weights(gp_pool *pool, uint32_t rank, int fd, gp_error *err)
{
    gp_control_socket_request request = pool_control_request(pool, GP_CONTROL_SOCKET_WEIGHTS);
    int *control_socket = &pool->worker_sockets[rank];
    gp_status status = GP_OK;

    /* The time limit equals that of an attach: the scheduler kills a suspended worker within this
     * time. */
    if (*control_socket < 0)
        status = pool_greet_worker(pool, rank, control_socket, POOL_ATTACH_MS, err);
    if (status == GP_ENOPOOL)
        status = gp_fail(err, GP_EPEER, "its process exited");
    if (status == GP_OK)
        status = gp_control_socket_send_fd(*control_socket, &request, fd, err);
    if (status != GP_OK)
        gp_error_prefix(err, "worker %" PRIu32, pool->grant.slots[rank].index);
    return status;
}

gp_status pool_receive_weights(gp_pool *pool, uint32_t rank, size_t bytes, float **weights, gp_error *err)
{
    const void *data;
    int fd = -1;
    gp_status status = GP_OK;

    /* A worker that repeated its message sent several descriptors: keep the last one. */
    while (status == GP_OK) {
        gp_control_socket_request request;
        int got = -1;

        status = gp_control_socket_receive_fd(pool->worker_sockets[rank], &request, &got, 0, err);
        if (got < 0)
            continue;
        if (fd >= 0)
            close(fd);
        fd = got;
    }
    if (fd >= 0) {
        status = gp_seal_map(&data, fd, bytes, err);
        close(fd);
    }
    if (status == GP_OK)
        *weights = (float *)(uintptr_t)data;
    else
        gp_error_prefix(err, "weights of worker %" PRIu32, pool->grant.slots[rank].index);
    return status;
}

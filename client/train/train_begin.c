#include "client/train/train_begin.h"

#include <unistd.h>

#include "common/base/system/seal.h"
#include "common/base/text/json.h"

void gp_begin_message_init(gp_begin_message *message)
{
    *message = (gp_begin_message){ .weights_fd = -1 };
    gp_buffer_init(&message->network, GP_NETSPEC_BYTES_MAX);
    gp_buffer_init(&message->options, 1 << 16);
    gp_buffer_init(&message->classes, GP_JSON_BYTES_MAX);
}

void gp_begin_message_deinit(gp_begin_message *message)
{
    if (message->weights_fd >= 0)
        close(message->weights_fd);
    gp_buffer_deinit(&message->network);
    gp_buffer_deinit(&message->options);
    gp_buffer_deinit(&message->classes);
}

gp_status gp_begin_message_set_options(gp_begin_message *message, const gp_train_options *options,
                                       gp_error *err)
{
    gp_json_writer writer;

    gp_buffer_clear(&message->options);
    gp_json_writer_init(&writer, &message->options, false);
    gp_json_begin_object(&writer, NULL);
    gp_params_to_json(gp_train_options_table, options, false, &writer);
    gp_json_end_object(&writer);
    return gp_json_writer_finish(&writer, err);
}

gp_status gp_begin_message_set_weights(gp_begin_message *message, gp_network *network, size_t bytes,
                                       gp_error *err)
{
    gp_status status;

    if (network->weights == NULL || message->weights_fd >= 0)
        return GP_OK;
    status = gp_seal_new(&message->weights_fd, network->weights, bytes, err);
    if (status == GP_OK) {
        message->weights_bytes = bytes;
        gp_network_set_weights(network, NULL, 0);
    }
    return status;
}

gp_status gp_begin_message_send(const gp_begin_message *message, gp_pool *pool, uint32_t rank,
                                const gp_train_begin *fields, bool with_weights, uint64_t *correlation,
                                gp_error *err)
{
    const bool has_weights = with_weights && message->weights_fd >= 0;
    const uint64_t weights_bytes = has_weights ? message->weights_bytes : 0;
    const gp_payload payloads[] = {
        { .data = message->network.data, .bytes = message->network.bytes },
        { .data = message->options.data, .bytes = message->options.bytes },
        { .data = &weights_bytes, .bytes = sizeof(weights_bytes) },
        { .data = message->classes.data, .bytes = message->classes.bytes },
    };
    const size_t count = message->classes.bytes > 0 ? 4 : has_weights ? 3 : 2;
    gp_status status = GP_OK;

    if (has_weights || rank == 0) /* rank 0 needs the connection to return the trained weights */
        status = pool_send_weights(pool, rank, has_weights ? message->weights_fd : -1, err);
    if (status == GP_OK)
        status =
            pool_post_to_worker(pool, rank, &gp_msg_train_begin, fields, payloads, count, correlation, err);
    return status;
}

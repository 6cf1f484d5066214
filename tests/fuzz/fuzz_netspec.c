/* fuzz_netspec.c: network JSON gives an error message, or a network that survives a round trip. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory/alloc.h"
#include "common/base/memory/buffer.h"
#include "common/model/graph/graph.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void promise(bool kept)
{
    if (!kept)
        abort();
}

static void write_again(const gp_netspec *spec)
{
    gp_buffer once, twice;
    gp_netspec *again;

    gp_buffer_init(&once, GP_NETSPEC_BYTES_MAX);
    gp_buffer_init(&twice, GP_NETSPEC_BYTES_MAX);
    promise(gp_netspec_to_json(spec, &once, false, NULL) == GP_OK);
    promise(gp_netspec_from_json(&again, gp_buffer_text(&once), once.bytes, NULL) == GP_OK);
    promise(gp_netspec_to_json(again, &twice, false, NULL) == GP_OK);
    promise(once.bytes == twice.bytes && memcmp(once.data, twice.data, once.bytes) == 0);
    gp_netspec_free(again);
    gp_buffer_deinit(&once);
    gp_buffer_deinit(&twice);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    int64_t live = gp_alloc_get_stats().live;
    gp_error err = { GP_OK, "" };
    gp_netspec *spec;
    gp_graph *graph;

    if (gp_netspec_from_json(&spec, (const char *)data, bytes, &err) == GP_OK) {
        write_again(spec);
        if (gp_graph_new(&graph, spec, &err) == GP_OK)
            gp_graph_free(graph);
        else
            promise(err.message[0] != '\0');
        gp_netspec_free(spec);
    } else {
        promise(err.message[0] != '\0');
    }
    promise(gp_alloc_get_stats().live == live);
    return 0;
}

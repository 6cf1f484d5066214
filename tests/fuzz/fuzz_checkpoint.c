/* fuzz_checkpoint.c: hostile checkpoint records are read completely, or refused with an error
 * message and without side effects.
 *
 * The tensors beside the record are valid, and the checksum of the record is corrected here so that
 * fuzzing reaches the code behind it. (The tensors' header is compared with the expected one, never
 * parsed.) */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/memory/alloc.h"
#include "common/base/memory/crc32c.h"
#include "tests/common/model/nets.h"
#include "tests/leftovers.h"
#include "worker/train/checkpoint.h"

enum { RECORD_BYTES = 1 << 16 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static char directory[64];
static gp_graph *graph;
static gp_train_options options;
static gp_checkpoint state;
static gp_checkpoint_frame frame;

static void promise(bool kept)
{
    if (!kept)
        abort();
}

static void leave(void)
{
    leftovers_clear(directory);
    gp_free(state.parameters);
    gp_free(state.state);
    gp_graph_free(graph);
}

static void begin(void)
{
    static const gp_shape image = { 3, { 1, 4, 4 } };
    gp_error err;

    strcpy(directory, access("/dev/shm", W_OK) == 0 ? "/dev/shm/gp-fuzz-XXXXXX" : "/tmp/gp-fuzz-XXXXXX");
    promise(mkdtemp(directory) != NULL);
    promise(net_graph(&graph, &image, "f fc outputs=3 | l crossentropy", &err) == GP_OK);
    promise(gp_train_options_from_json(&options, "{}", 2, &err) == GP_OK);
    frame = (gp_checkpoint_frame){
        .graph = graph, .options = &options, .data_fingerprint = 0xfeedbeef, .world = 1
    };
    state.state_blobs = 1;
    state.progress.step = 7;
    state.parameters = gp_calloc(graph->blob_count, sizeof(float));
    state.state = gp_calloc(graph->blob_count, sizeof(float));
    promise(state.parameters != NULL && state.state != NULL);
    promise(gp_checkpoint_write(directory, &frame, &state, &err) == GP_OK);
    atexit(leave);
}

/* Store the checksum, computed with zeros in its place as the writer does. */
static void check_put(char *text, size_t bytes)
{
    static const char key[] = "\"check\": \"";
    char *at = strstr(text, key), digits[9];

    if (at == NULL || strlen(at) < sizeof(key) + 8)
        return;
    at += sizeof(key) - 1;
    memset(at, '0', 8);
    snprintf(digits, sizeof(digits), "%08" PRIx32, gp_crc32c(0, text, bytes));
    memcpy(at, digits, 8);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static char text[RECORD_BYTES + 1];
    char path[100], damaged[240];
    gp_error err = { GP_OK, "" };

    if (graph == NULL)
        begin();
    if (bytes > RECORD_BYTES)
        return 0;
    memcpy(text, data, bytes);
    text[bytes] = '\0';
    check_put(text, bytes);
    snprintf(path, sizeof(path), "%s/7.json", directory);
    FILE *file = fopen(path, "w");

    promise(file != NULL && fwrite(text, 1, bytes, file) == bytes && fclose(file) == 0);
    gp_checkpoint read = state;
    int64_t live = gp_alloc_get_stats().live;

    if (gp_checkpoint_read(&read, &frame, directory, damaged, &err) != GP_OK)
        promise(err.message[0] != '\0' && memcmp(&read, &state, sizeof(read)) == 0);
    gp_free(read.plans);
    promise(gp_alloc_get_stats().live == live);
    return 0;
}

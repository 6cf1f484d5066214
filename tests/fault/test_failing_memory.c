/* test_failing_memory.c: the n-th allocation fails, n = 1, 2, 3, ..., in our code or in a library,
 * while objects are created, opened, parsed or decoded. Expected: GP_ENOMEM (or the correct result
 * without it), no leak, no change to outputs.
 *
 * Objects that need daemons are covered by worker and client tests, through gp_malloc's hook. */
#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/gradpool.h"
#include "common/base/system/file.h"
#include "common/base/text/json.h"
#include "common/base/text/log.h"
#include "common/data/format/idx.h"
#include "common/data/image/image.h"
#include "common/data/loader/loader.h"
#include "common/model/edit.h"
#include "common/model/network.h"
#include "common/model/onnx/onnx.h"
#include "proto/local/control_socket.h"
#include "proto/task/link.h"
#include "proto/message/messages.h"
#include "scheduler/core/core.h"
#include "scheduler/jobs/journal.h"
#include "tests/common/data/folder.h"
#include "tests/common/data/make_images.h"
#include "tests/fault/memory.h"
#include "tests/gp_test.h"
#include "tests/common/model/nets.h"
#include "worker/train/checkpoint.h"
#include "worker/process/mailbox.h"
#include "worker/optim/optim.h"

typedef struct op {
    const char *name;
    gp_status (*run)(gp_error *err); /* creates, checks and frees objects */
} op;

/* Value that a failed constructor must not overwrite. */
#define UNTOUCHED ((void *)(uintptr_t)0x5a5a5a5a)
#define CHECK_UNTOUCHED(status, out)                                                                         \
    do {                                                                                                     \
        if ((status) != GP_OK && (void *)(out) != UNTOUCHED)                                                 \
            GP_TEST_FAIL("an output was changed by a failure");                                              \
    } while (0)

/* ---- base ---- */

static gp_status run_json(gp_error *err)
{
    static const char text[] = "{\"a\": [1, 2.5, \"three\", {\"b\": null}], \"c\": true}";
    gp_json *json = UNTOUCHED;
    gp_status status = gp_json_parse(&json, text, sizeof(text) - 1, err);

    CHECK_UNTOUCHED(status, json);
    if (status == GP_OK) {
        CHECK(gp_json_bool(gp_json_member(json, "c"), false));
        gp_json_free(json);
    }
    return status;
}

static gp_status run_json_write(gp_error *err)
{
    gp_json_writer writer;
    gp_buffer text;

    gp_buffer_init(&text, 1 << 16);
    gp_json_writer_init(&writer, &text, true);
    gp_json_begin_object(&writer, NULL);
    for (int i = 0; i < 40; i++)
        gp_json_put_text(&writer, i % 2 == 0 ? "a name" : "another name", "a text that is not short");
    gp_json_end_object(&writer);
    gp_status status = gp_json_writer_finish(&writer, err);

    gp_buffer_deinit(&text);
    return status;
}

static gp_status run_options(gp_error *err)
{
    static const char text[] = "{\"solver\": \"adam\", \"max-epochs\": 3, \"checkpoint-path\": \"/x\"}";
    gp_train_options options;
    gp_status status = gp_train_options_from_json(&options, text, sizeof(text) - 1, err);

    if (status == GP_OK)
        CHECK_INT(3, options.max_epochs);
    return status;
}

static gp_status run_file_read(gp_error *err)
{
    uint8_t *data = UNTOUCHED;
    size_t bytes = 0;
    gp_status status = gp_file_read(&data, &bytes, in_folder("model.onnx"), 1 << 20, err);

    CHECK_UNTOUCHED(status, data);
    if (status == GP_OK)
        gp_free(data);
    return status;
}

/* ---- model ---- */

static const gp_shape image = { 3, { 1, 8, 8 } };
static const char *const net = "c conv2d channels=4;kernel=3 | r relu | f fc outputs=5 | l crossentropy";

static gp_status run_graph(gp_error *err)
{
    gp_graph *graph = UNTOUCHED;
    gp_status status = net_graph(&graph, &image, net, err);

    CHECK_UNTOUCHED(status, graph);
    if (status == GP_OK)
        gp_graph_free(graph);
    return status;
}

static gp_status run_network_json(gp_error *err)
{
    gp_network network = { .spec = NULL };
    gp_status status = gp_network_load(&network, in_folder("net.json"), NULL, 0, err);

    if (status == GP_OK)
        gp_network_deinit(&network);
    return status;
}

static gp_status run_network_onnx(gp_error *err)
{
    gp_network network = { .spec = NULL };
    gp_status status = gp_network_load(&network, in_folder("model.onnx"), NULL, 0, err);

    if (status == GP_OK) {
        CHECK_INT(5, network.class_count);
        CHECK(network.weights != NULL && network.weights[3] > 0);
        gp_network_deinit(&network);
    }
    return status;
}

static gp_status run_zoo(gp_error *err)
{
    static const gp_shape digits = { 3, { 1, 28, 28 } };
    gp_network network = { .spec = NULL };
    gp_status status = gp_network_load(&network, "lenet", &digits, 10, err);

    if (status == GP_OK)
        gp_network_deinit(&network);
    return status;
}

static const char *const classes[] = { "a", "b", "c", "d", "e" };

static gp_status onnx_write(gp_buffer *out, gp_error *err)
{
    gp_netspec *spec;
    gp_graph *graph;
    gp_status status = net_parse(&spec, &image, net, err);

    if (status != GP_OK)
        return status;
    status = gp_graph_new(&graph, spec, err);
    if (status == GP_OK) {
        float *blob = gp_malloc(graph->blob_count * sizeof(float));

        for (size_t i = 0; blob != NULL && i < graph->blob_count; i++)
            blob[i] = (float)(i + 1);
        status = blob == NULL ? gp_fail(err, GP_ENOMEM, "no memory")
                              : gp_onnx_write(out, spec, graph, blob, classes, 5, err);
        gp_free(blob);
        gp_graph_free(graph);
    }
    gp_netspec_free(spec);
    return status;
}

static gp_status run_onnx_write(gp_error *err)
{
    gp_buffer file;

    gp_buffer_init(&file, 1 << 20);
    gp_status status = onnx_write(&file, err);

    if (status != GP_OK)
        CHECK_INT(0, file.bytes);
    gp_buffer_deinit(&file);
    return status;
}

static gp_status run_edit(gp_error *err)
{
    gp_edit *edit = UNTOUCHED;
    gp_edited edited;
    gp_netspec *spec;
    gp_status status = net_parse(&spec, &image, net, err);

    if (status != GP_OK)
        return status;
    status = gp_edit_new(&edit, spec, NULL, err);
    CHECK_UNTOUCHED(status, edit);
    if (status == GP_OK) {
        status = gp_edit_remove_last(edit, 2, err);
        if (status == GP_OK)
            status = gp_edit_add(edit, "fc:3", err);
        if (status == GP_OK)
            status = gp_edit_add(edit, "crossentropy", err);
        if (status == GP_OK)
            status = gp_edit_finish(edit, (gp_init_rule){ .kind = GP_INIT_GLOROT }, 1, &edited, err);
        if (status == GP_OK)
            gp_edited_deinit(&edited);
        gp_edit_free(edit);
    }
    gp_netspec_free(spec);
    return status;
}

/* ---- data ---- */

static gp_status read_some(const gp_store *store, gp_error *err)
{
    const gp_store_info *info = gp_store_get_info(store);
    uint32_t index[3] = { 0, info->count - 1, info->count / 2 };
    uint8_t *samples = gp_malloc(3 * info->sample_bytes);
    int32_t targets[3];
    gp_status status = samples == NULL ? gp_fail(err, GP_ENOMEM, "no memory")
                                       : gp_store_read(store, index, 3, samples, targets, err);

    gp_free(samples);
    return status;
}

static gp_status open_and_read(const char *source, gp_error *err)
{
    gp_store *store = UNTOUCHED;
    gp_status status = gp_store_open(&store, source, GP_DATA_TRAIN, err);

    CHECK_UNTOUCHED(status, store);
    if (status != GP_OK)
        return status;
    status = read_some(store, err);
    gp_store_close(store);
    return status;
}

static gp_status run_digits(gp_error *err)
{
    return open_and_read("digits:40", err);
}

static gp_status run_synthetic(gp_error *err)
{
    return open_and_read("synthetic:8x8x3:4:30", err);
}

static gp_status run_idx(gp_error *err)
{
    return open_and_read(in_folder("idx"), err);
}

static gp_status run_images(gp_error *err)
{
    return open_and_read(in_folder("images"), err);
}

static gp_status run_csv(gp_error *err)
{
    return open_and_read(in_folder("list.csv"), err);
}

static uint8_t png_file[1 << 14], jpeg_file[1 << 14];
static size_t png_bytes, jpeg_bytes;

static gp_status run_decode(const uint8_t *data, size_t bytes, gp_error *err)
{
    gp_image_decoder *decoder = UNTOUCHED;
    gp_pixels pixels;
    gp_status status = gp_image_decoder_new(&decoder, err);

    CHECK_UNTOUCHED(status, decoder);
    if (status != GP_OK)
        return status;
    status = gp_image_decode(decoder, &pixels, &(gp_image_want){ .channels = 3 }, data, bytes, "x", err);
    if (status == GP_OK)
        CHECK_INT(12, pixels.width);
    gp_image_decoder_free(decoder);
    return status;
}

static gp_status run_png(gp_error *err)
{
    return run_decode(png_file, png_bytes, err);
}

static gp_status run_jpeg(gp_error *err)
{
    return run_decode(jpeg_file, jpeg_bytes, err);
}

static gp_status run_to_png(gp_error *err)
{
    static const uint8_t rgb[12 * 9 * 3];
    uint8_t *file = UNTOUCHED;
    size_t bytes = 0;
    gp_status status = gp_image_to_png(&file, &bytes, rgb, 12, 9, err);

    CHECK_UNTOUCHED(status, file);
    if (status == GP_OK)
        gp_free(file);
    return status;
}

static gp_status run_loader(gp_error *err)
{
    gp_store *store;
    gp_loader *loader = UNTOUCHED;
    gp_loader_batch *batch;
    gp_sampler sampler;
    gp_status status = gp_store_open(&store, "digits:40", GP_DATA_TRAIN, err);

    if (status != GP_OK)
        return status;
    gp_sampler_init(&sampler, 40, GP_SHUFFLE_EVERY_EPOCH, 1);
    status = gp_loader_new(&loader, store, &sampler, &(gp_loader_options){ .depth = 2, .capacity = 8 }, err);
    CHECK_UNTOUCHED(status, loader);
    if (status == GP_OK) {
        status = gp_loader_request(loader, 0, 0, 8, err);
        if (status == GP_OK)
            status = gp_loader_take(loader, &batch, NULL, err);
        gp_loader_free(loader);
    }
    gp_store_close(store);
    return status;
}

/* ---- proto ---- */

static gp_status run_message(gp_error *err)
{
    static const gp_hello hello = {
        .role = GP_ROLE_CLIENT, .protocol_min = 1, .protocol_max = 9, .build = "x", .pid = 1
    };
    gp_hello got;
    gp_envelope envelope = { .message = 1, .lease = 7 };
    gp_buffer body, head;

    gp_buffer_init(&body, 1 << 16);
    gp_buffer_init(&head, 1 << 12);
    gp_status status = gp_message_encode(&body, &gp_msg_hello, &hello, err);

    if (status == GP_OK)
        status = gp_envelope_encode(&head, &envelope, err);
    if (status == GP_OK)
        status = gp_envelope_decode(&envelope, head.data, head.bytes, err);
    if (status == GP_OK)
        status = gp_message_decode(&got, &gp_msg_hello, body.data, body.bytes, err);
    gp_buffer_deinit(&body);
    gp_buffer_deinit(&head);
    return status;
}

static gp_status run_control_socket(gp_error *err)
{
    gp_control_socket *control_socket = UNTOUCHED;
    gp_status status = gp_control_socket_open(&control_socket, in_folder("door"), 4, err);

    CHECK_UNTOUCHED(status, control_socket);
    if (status == GP_OK)
        gp_control_socket_close(control_socket);
    return status;
}

static gp_status run_link(gp_error *err)
{
    gp_link *link = UNTOUCHED;
    int fd;
    gp_status status = gp_link_new(&link, &fd, err);

    CHECK_UNTOUCHED(status, link);
    if (status == GP_OK) {
        gp_link_free(link);
        close(fd);
    }
    return status;
}

/* ---- scheduler and worker ---- */

static gp_status see_row(void *context, const gp_jobs_job *row, gp_error *err)
{
    (void)context;
    (void)row;
    (void)err;
    return GP_OK;
}

static gp_status run_journal(gp_error *err)
{
    gp_journal *journal = UNTOUCHED;
    uint64_t next;
    gp_status status = gp_journal_open(&journal, folder, err);

    CHECK_UNTOUCHED(status, journal);
    if (status != GP_OK)
        return status;
    status = gp_journal_load(journal, see_row, NULL, &next, err);
    gp_journal_close(journal);
    return status;
}

static gp_status run_core(gp_error *err)
{
    static gp_core_slot_config plan[2];
    gp_core_config config = gp_core_config_default();
    gp_core *core = UNTOUCHED;
    gp_status status = gp_core_new(&core, &config, plan, 2, 1, err);

    CHECK_UNTOUCHED(status, core);
    if (status == GP_OK)
        gp_core_free(core);
    return status;
}

static gp_status run_mailbox(gp_error *err)
{
    gp_mailbox *mailbox = UNTOUCHED;
    gp_status status = gp_mailbox_new(&mailbox, err);

    CHECK_UNTOUCHED(status, mailbox);
    if (status == GP_OK)
        gp_mailbox_free(mailbox);
    return status;
}

/* Write a checkpoint and read it back. A failed read must leave the state unchanged. */
static gp_status run_checkpoint(gp_error *err)
{
    gp_train_options options;
    char damaged[240];
    gp_graph *graph;
    gp_status status = gp_train_options_from_json(&options, "{\"solver\": \"adam\"}", 18, err);

    if (status == GP_OK)
        status = net_graph(&graph, &image, net, err);
    if (status != GP_OK)
        return status;
    gp_checkpoint_frame frame = { .graph = graph, .options = &options, .data_fingerprint = 1, .world = 2 };
    gp_checkpoint state = { .progress.step = 4,
                            .state_blobs = 2,
                            .parameters = gp_calloc(graph->blob_count, sizeof(float)),
                            .state = gp_calloc(graph->blob_count * 2, sizeof(float)) };

    status = state.parameters == NULL || state.state == NULL
                 ? gp_fail(err, GP_ENOMEM, "no memory")
                 : gp_checkpoint_write(in_folder("checkpoints"), &frame, &state, err);
    if (status == GP_OK)
        status = gp_checkpoint_read(&state, &frame, in_folder("checkpoints"), damaged, err);
    if (status == GP_OK)
        CHECK_INT(4, state.progress.step);
    gp_free(state.parameters);
    gp_free(state.state);
    gp_graph_free(graph);
    return status;
}

static gp_status run_optim(gp_error *err)
{
    gp_train_options options;
    gp_optim *optim = UNTOUCHED;
    gp_graph *graph;
    gp_status status = gp_train_options_from_json(&options, "{\"solver\": \"adam\"}", 18, err);

    if (status == GP_OK)
        status = net_graph(&graph, &image, net, err);
    if (status != GP_OK)
        return status;
    status = gp_optim_new(&optim, graph, &options, err);
    CHECK_UNTOUCHED(status, optim);
    if (status == GP_OK)
        gp_optim_free(optim);
    gp_graph_free(graph);
    return status;
}

/* ---- client ---- */

static gp_status run_training(gp_error *err)
{
    static const char *const options[] = { "max-epochs=1", NULL };
    gp_train_request request = { .network = "lenet", .data = "digits:40", .options = options };
    gp_training *training = UNTOUCHED;
    gp_status status = gp_training_new(&training, &request, err);

    CHECK_UNTOUCHED(status, training);
    if (status == GP_OK)
        gp_training_free(training);
    return status;
}

static const op ops[] = {
    { "json", run_json },
    { "json written", run_json_write },
    { "training options", run_options },
    { "a file read", run_file_read },
    { "graph", run_graph },
    { "network of JSON", run_network_json },
    { "network of ONNX", run_network_onnx },
    { "network of the zoo", run_zoo },
    { "ONNX written", run_onnx_write },
    { "edit", run_edit },
    { "digits", run_digits },
    { "synthetic data", run_synthetic },
    { "IDX data", run_idx },
    { "image folder", run_images },
    { "CSV list", run_csv },
    { "PNG", run_png },
    { "JPEG", run_jpeg },
    { "PNG written", run_to_png },
    { "loader", run_loader },
    { "message", run_message },
    { "door", run_control_socket },
    { "link", run_link },
    { "journal", run_journal },
    { "core", run_core },
    { "mailbox", run_mailbox },
    { "checkpoint", run_checkpoint },
    { "optimiser", run_optim },
    { "training", run_training },
};

static void walk(const op *o)
{
    enum { NTH_MAX = 100000, EACH = 300 };
    gp_error err = { 0 };
    uint64_t n = 0, failed = 0;

    for (int i = 0; i < 2; i++) /* libraries allocate permanent memory now */
        if (o->run(&err) != GP_OK) {
            GP_TEST_FAIL("%s fails without an injected fault: %s", o->name, err.message);
            return;
        }
    for (n = 1; n < NTH_MAX && gp_test_failures == 0; n += n < EACH ? 1 : n / 40) {
        int64_t live = memory_live();

        err = (gp_error){ .code = GP_OK };
        memory_fail_nth(n);
        gp_status status = o->run(&err);

        memory_fail_nth(0);
        if (memory_live() != live)
            GP_TEST_FAIL("%s leaks %lld blocks when allocation %llu fails", o->name,
                         (long long)(memory_live() - live), (unsigned long long)n);
        if (!memory_struck())
            break;
        failed++;
        if (status != GP_OK && (status != GP_ENOMEM || err.code != status || err.message[0] == '\0'))
            GP_TEST_FAIL("%s: allocation %llu fails, and it returns %s: %s", o->name, (unsigned long long)n,
                         gp_status_name(status), err.message);
    }
    CHECK(n < NTH_MAX);
    if (o->run(&err) != GP_OK)
        GP_TEST_FAIL("%s, afterwards: %s", o->name, err.message);
    printf("     %-20s %llu of %llu allocations failed\n", o->name, (unsigned long long)failed,
           (unsigned long long)n - 1);
}

static void prepare(void)
{
    static const char json[] = "{\"name\": \"tiny\", \"input\": [1, 8, 8], \"layers\": ["
                               "{\"name\": \"f\", \"kind\": \"fc\", \"outputs\": 5}, {\"name\": \"l\", "
                               "\"kind\": \"crossentropy\"}]}";
    static uint8_t pixels[12 * 9 * 3];
    uint8_t labels[20] = { 0, 1, 2 };
    gp_buffer file;
    gp_error err;

    folder_make();
    setenv("XDG_CACHE_HOME", in_folder("cache"), 1);
    file_put(in_folder("net.json"), json, sizeof(json) - 1);
    gp_buffer_init(&file, 1 << 20);
    REQUIRE_OK(onnx_write(&file, &err), err);
    file_put(in_folder("model.onnx"), file.data, file.bytes);
    gp_buffer_deinit(&file);
    mkdir(in_folder("idx"), 0700);
    REQUIRE_OK(gp_idx_write(in_folder("idx/train-images-idx3-ubyte"),
                            &(gp_idx){ .rank = 3, .dim = { 20, 3, 4 }, .bytes = 240, .data = pixels }, true,
                            NULL, &err),
               err);
    REQUIRE_OK(gp_idx_write(in_folder("idx/train-labels-idx1-ubyte"),
                            &(gp_idx){ .rank = 1, .dim = { 20 }, .bytes = 20, .data = labels }, false, NULL,
                            &err),
               err);
    for (size_t i = 0; i < sizeof(pixels); i++)
        pixels[i] = (uint8_t)(i * 7);
    mkdir(in_folder("images"), 0700);
    FILE *list = fopen(in_folder("list.csv"), "w");

    for (int c = 0; c < 2; c++) {
        char name[100];

        mkdir(in_folder(c == 0 ? "images/a" : "images/b"), 0700);
        for (int i = 0; i < 4; i++) {
            made_image made = { .width = 12, .height = 9, .channels = 3, .data = pixels };

            snprintf(name, sizeof(name), "images/%c/%d.%s", 'a' + c, i, i % 2 == 0 ? "png" : "jpg");
            if (i % 2 == 0)
                make_png(in_folder(name), &made);
            else
                make_jpeg(in_folder(name), &made, 90);
            fprintf(list, "%s,%c\n", name, 'a' + c);
        }
    }
    fclose(list);
    png_bytes = file_get(in_folder("images/a/0.png"), png_file, sizeof(png_file));
    jpeg_bytes = file_get(in_folder("images/a/1.jpg"), jpeg_file, sizeof(jpeg_file));
}

TEST(every_failed_allocation_is_reported_without_leaks)
{
    const char *only = getenv("GP_MEMORY_ONLY");

    gp_log_setup("test", (gp_log_level)(GP_LOG_ERROR + 1));
    prepare();
    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
        int before = gp_test_failures;

        gp_test_failures = 0;
        if (only == NULL || strcmp(only, ops[i].name) == 0)
            walk(&ops[i]);
        gp_test_failures += before;
    }
    folder_remove();
}

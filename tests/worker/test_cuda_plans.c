/* cuDNN has a plan for the convolutions of the zoo's networks on an H200: asked of cuDNN itself, without a GPU, by the
 * properties of one (tests/gpu/h200.json).  What it refuses runs on kernels of our own, which is right and slow. */
#include "tests/gp_test.h"

#include <stdlib.h>

#include "common/model/graph.h"
#include "worker/backend/cuda/cudnn_conv.h"

static char *properties_read(void)
{
    static char text[4096];
    char path[512];

    snprintf(path, sizeof(path), "%s/tests/gpu/h200.json",
             getenv("GP_SOURCE_DIR") == NULL ? "." : getenv("GP_SOURCE_DIR"));
    FILE *file = fopen(path, "r");
    size_t bytes = file == NULL ? 0 : fread(text, 1, sizeof(text) - 1, file);

    if (file != NULL)
        fclose(file);
    text[bytes] = '\0';
    return text;
}

static gp_kernel_image image_of(const gp_shape *shape, bool packed, bool narrow)
{
    gp_kernel_image image = { .channels = (uint32_t)shape->dim[0],
                              .height = (uint32_t)shape->dim[1],
                              .width = (uint32_t)shape->dim[2],
                              .narrow = narrow };

    image.pixels = image.height * image.width;
    image.sample = image.channels * image.pixels;
    image.channel_stride = packed ? 1 : image.pixels;
    image.pixel_stride = packed ? image.channels : 1;
    return image;
}

typedef struct tally {
    uint32_t asked, have;
    char refused[400];
} tally;

static void ask(tally *t, const gp_graph *graph, const gp_op *op, bool packed, bool narrow, bool tf32,
                const char *properties)
{
    static const gp_conv_pass passes[] = { [GP_OP_CONV2D] = GP_CONV_FORWARD,
                                           [GP_OP_CONV2D_BACKWARD_DATA] = GP_CONV_DATA,
                                           [GP_OP_CONV2D_BACKWARD_WEIGHTS] = GP_CONV_WEIGHTS };
    uint32_t x = op->code == GP_OP_CONV2D_BACKWARD_DATA ? op->out[0] : op->in[0];
    uint32_t y = op->code == GP_OP_CONV2D                 ? op->out[0]
                 : op->code == GP_OP_CONV2D_BACKWARD_DATA ? op->in[0]
                                                          : op->in[1];
    gp_conv_request request = { .pass = passes[op->code],
                                .x = image_of(&graph->values[x].shape, packed, narrow),
                                .y = image_of(&graph->values[y].shape, packed, narrow),
                                .rows = 64,
                                .groups = op->window.groups,
                                .tf32 = tf32 };
    gp_cudnn_conv *conv;
    size_t workspace;
    gp_error err;

    memcpy(request.kernel, op->window.kernel, sizeof(request.kernel));
    memcpy(request.stride, op->window.stride, sizeof(request.stride));
    memcpy(request.dilation, op->window.dilation, sizeof(request.dilation));
    memcpy(request.padding, op->window.padding, sizeof(request.padding));
    t->asked++;
    if (gp_cudnn_conv_new(&conv, NULL, properties, &request, &workspace, &err) == GP_OK) {
        bool tensor_cores;
        int64_t engine = gp_cudnn_conv_engine(conv, &tensor_cores);

        if (getenv("GP_VERBOSE") != NULL)
            printf("pass %d %ux%ux%u -> %u k%d s%d g%d: engine %lld, %zu bytes\n", (int)request.pass,
                   request.x.channels, request.x.height, request.x.width, request.y.channels,
                   request.kernel[0], request.stride[0], request.groups, (long long)engine, workspace);
        t->have++;
        gp_cudnn_conv_free(conv);
        return;
    }
    if (getenv("GP_VERBOSE") != NULL)
        printf("pass %d %ux%ux%u -> %u k%d s%d g%d: %s\n", (int)request.pass, request.x.channels,
               request.x.height, request.x.width, request.y.channels, request.kernel[0], request.stride[0],
               request.groups, err.message);
    snprintf(t->refused, sizeof(t->refused), "pass %d: %.300s", (int)request.pass, err.message);
}

/* Every convolution whose window and shapes have not been asked for before. */
static bool seen_before(const gp_graph *graph, const gp_ops *ops, uint32_t index)
{
    const gp_op *op = &ops->op[index];

    for (uint32_t i = 0; i < index; i++)
        if (ops->op[i].code == op->code && memcmp(&ops->op[i].window, &op->window, sizeof(op->window)) == 0 &&
            gp_shape_equal(&graph->values[ops->op[i].in[0]].shape, &graph->values[op->in[0]].shape) &&
            gp_shape_equal(&graph->values[ops->op[i].in[1]].shape, &graph->values[op->in[1]].shape))
            return true;
    return false;
}

static void network_ask(tally *t, const char *name, bool packed, bool narrow, bool tf32)
{
    const char *properties = properties_read();
    gp_netspec *spec;
    gp_graph *graph;
    gp_error err;

    REQUIRE_OK(gp_zoo_build(&spec, name, NULL, 0, &err), err);
    REQUIRE_OK(gp_graph_new(&graph, spec, &err), err);
    const gp_ops *ops = &graph->ops[GP_PHASE_TRAIN];

    for (uint32_t i = 0; i < ops->count; i++) {
        gp_opcode code = ops->op[i].code;

        if ((code == GP_OP_CONV2D || code == GP_OP_CONV2D_BACKWARD_DATA ||
             code == GP_OP_CONV2D_BACKWARD_WEIGHTS) &&
            !seen_before(graph, ops, i))
            ask(t, graph, &ops->op[i], packed, narrow, tf32, properties);
    }
    gp_graph_free(graph);
    gp_netspec_free(spec);
}

static void zoo_check(bool packed, bool narrow, bool tf32)
{
    gp_zoo_info info;

    for (size_t i = 0; gp_zoo_describe(i, &info); i++) {
        tally t = { 0 };

        network_ask(&t, info.name, packed, narrow, tf32);
        printf("     %s: %u of %u\n", info.name, t.have, t.asked);
        if (t.have < t.asked)
            GP_TEST_FAIL("%s: %u of %u convolutions have no plan; %s", info.name, t.asked - t.have, t.asked,
                         t.refused);
    }
}

TEST(the_zoos_convolutions_have_plans_in_bf16)
{
    zoo_check(true, true, false);
}

TEST(the_zoos_convolutions_have_plans_in_strict_float32)
{
    zoo_check(false, false, false);
}

TEST(the_zoos_convolutions_have_plans_in_tf32)
{
    zoo_check(true, false, true);
}

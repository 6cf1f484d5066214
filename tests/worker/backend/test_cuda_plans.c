/* test_cuda_plans.c: cuDNN has plans for the convolutions of the zoo networks, and for some fused
 * operations, on an A100, an H200 and a B200.
 *
 * The test asks cuDNN itself, without a GPU, with recorded device properties (JSON files in
 * tests/gpu). Unsupported operations run on our own kernels, which are correct but slow. The test
 * also checks how products are described to cuBLASLt. */
#include "tests/gp_test.h"

#include <dlfcn.h>
#include <stdlib.h>

#include "common/base/memory/alloc.h"
#include "common/model/graph/graph.h"
#include "worker/backend/cuda/libraries/cublas_product.h"
#include "worker/backend/cuda/libraries/cudnn_conv.h"

static char *properties_read(const char *device)
{
    static char text[4096];
    char path[512];

    snprintf(path, sizeof(path), "%s/tests/gpu/%s.json",
             getenv("GP_SOURCE_DIR") == NULL ? "." : getenv("GP_SOURCE_DIR"), device);
    FILE *file = fopen(path, "r");
    size_t bytes = file == NULL ? 0 : fread(text, 1, sizeof(text) - 1, file);

    if (file != NULL)
        fclose(file);
    text[bytes] = '\0';
    return text;
}

static gp_kernel_image image_of(const gp_shape *shape, bool packed, int32_t narrow)
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

/* Activation types and layout, as in plan.c. */
typedef struct numbers {
    bool packed;
    int32_t narrow;
    bool tf32;
} numbers;

static const numbers f32 = { false, GP_WIDE, false }, tf32 = { true, GP_WIDE, true },
                     bf16 = { true, GP_NARROW_BF16, false }, fp16 = { true, GP_NARROW_F16, false };

typedef struct tally {
    uint32_t asked, have;
    char refused[400];
} tally;

static void ask(tally *t, const gp_graph *graph, const gp_op *op, const numbers *how, const char *properties)
{
    static const gp_conv_pass passes[] = { [GP_OP_CONV2D] = GP_CONV_FORWARD,
                                           [GP_OP_CONV2D_BACKWARD_DATA] = GP_CONV_DATA,
                                           [GP_OP_CONV2D_BACKWARD_WEIGHTS] = GP_CONV_WEIGHTS };
    uint32_t x = op->code == GP_OP_CONV2D_BACKWARD_DATA ? op->out[0] : op->in[0];
    uint32_t y = op->code == GP_OP_CONV2D                 ? op->out[0]
                 : op->code == GP_OP_CONV2D_BACKWARD_DATA ? op->in[0]
                                                          : op->in[1];
    gp_conv_request request = { .pass = passes[op->code],
                                .x = image_of(&graph->values[x].shape, how->packed, how->narrow),
                                .y = image_of(&graph->values[y].shape, how->packed, how->narrow),
                                .rows = 64,
                                .groups = op->window.groups,
                                .tf32 = how->tf32 };
    gp_cudnn_conv *conv;
    size_t workspace;
    gp_error err;

    memcpy(request.kernel, op->window.kernel, sizeof(request.kernel));
    memcpy(request.stride, op->window.stride, sizeof(request.stride));
    memcpy(request.dilation, op->window.dilation, sizeof(request.dilation));
    memcpy(request.padding, op->window.padding, sizeof(request.padding));
    t->asked++;
    if (gp_cudnn_conv_new(&conv, NULL, properties, NULL, &request, NULL, &workspace, &err) == GP_OK) {
        if (getenv("GP_VERBOSE") != NULL)
            printf("pass %d %ux%ux%u -> %u k%d s%d g%d: engine %s, %zu bytes\n", (int)request.pass,
                   request.x.channels, request.x.height, request.x.width, request.y.channels,
                   request.kernel[0], request.stride[0], request.groups, gp_cudnn_conv_engine(conv)->name,
                   workspace);
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

/* Return whether an earlier convolution has the same window and shapes. */
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

static void network_ask(tally *t, const char *name, const numbers *how, const char *properties)
{
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
            ask(t, graph, &ops->op[i], how, properties);
    }
    gp_graph_free(graph);
    gp_netspec_free(spec);
}

static void zoo_check(const numbers *how, const char *device)
{
    const char *properties = properties_read(device);
    gp_zoo_info info;

    for (size_t i = 0; gp_zoo_describe(i, &info); i++) {
        tally t = { 0 };

        network_ask(&t, info.name, how, properties);
        printf("     %s: %u of %u\n", info.name, t.have, t.asked);
        if (t.have < t.asked)
            GP_TEST_FAIL("%s on %s: %u of %u convolutions have no plan; %s", info.name, device,
                         t.asked - t.have, t.asked, t.refused);
    }
}

TEST(the_zoos_convolutions_have_plans_in_bf16)
{
    zoo_check(&bf16, "h200");
}

TEST(the_zoos_convolutions_have_plans_in_fp16)
{
    zoo_check(&fp16, "h200");
}

TEST(the_zoos_convolutions_have_plans_in_strict_float32)
{
    zoo_check(&f32, "h200");
}

TEST(the_zoos_convolutions_have_plans_in_tf32)
{
    zoo_check(&tf32, "h200");
}

TEST(the_zoos_convolutions_have_plans_in_bf16_on_an_a100_and_a_b200)
{
    zoo_check(&bf16, "a100");
    zoo_check(&bf16, "b200");
}

/* ---- fused operations ---- */

typedef struct window {
    uint32_t inputs, size, outputs;
    int32_t kernel, stride;
} window;

/* Convolutions from ResNet-50, from the stem to the last block. */
static const window windows[] = {
    { 3, 224, 64, 7, 2 },   { 64, 56, 64, 1, 1 },   { 64, 56, 64, 3, 1 },   { 64, 56, 256, 1, 1 },
    { 128, 56, 128, 3, 2 }, { 512, 28, 128, 1, 1 }, { 256, 14, 256, 3, 1 }, { 1024, 14, 512, 1, 1 },
    { 512, 7, 512, 3, 1 },  { 512, 7, 2048, 1, 1 },
};

static gp_conv_request request_of(const window *w, gp_conv_pass pass, const numbers *how)
{
    const gp_shape x = gp_shape3(w->inputs, w->size, w->size),
                   y = gp_shape3(w->outputs, (w->size - 1) / (uint32_t)w->stride + 1,
                                 (w->size - 1) / (uint32_t)w->stride + 1);
    gp_conv_request request = { .pass = pass,
                                .x = image_of(&x, how->packed, how->narrow),
                                .y = image_of(&y, how->packed, how->narrow),
                                .rows = 256,
                                .kernel = { w->kernel, w->kernel },
                                .stride = { w->stride, w->stride },
                                .dilation = { 1, 1 },
                                .groups = 1,
                                .tf32 = how->tf32 };

    for (int i = 0; i < 4; i++)
        request.padding[i] = w->kernel / 2;
    if (how->narrow != GP_WIDE && w->inputs < 8) { /* input of such a network (fuse.c) */
        request.x.pixel_stride = 8;
        request.x.sample = 8 * request.x.pixels;
    }
    return request;
}

static bool has_plan(const gp_conv_request *request, const char *device, bool *tensor_cores,
                     size_t *workspace)
{
    gp_cudnn_conv *conv;
    gp_error err;
    bool has = gp_cudnn_conv_new(&conv, NULL, properties_read(device), NULL, request, NULL, workspace,
                                 &err) == GP_OK;

    if (has) {
        *tensor_cores = gp_cudnn_conv_engine(conv)->tensor_cores;
        if (getenv("GP_VERBOSE") != NULL)
            printf("     %s: %u -> %u, kernel %d: engine %s, %zu bytes\n", device, request->x.channels,
                   request->y.channels, request->kernel[0], gp_cudnn_conv_engine(conv)->name, *workspace);
        gp_cudnn_conv_free(conv);
    } else if (getenv("GP_VERBOSE") != NULL) {
        printf("     %s: %u -> %u, kernel %d: %s\n", device, request->x.channels, request->y.channels,
               request->kernel[0], err.message);
    }
    return has;
}

/* Check plans with bias and ReLU, which precompiled engines support. */
static void check_followed(const numbers *how, const char *device)
{
    for (size_t i = 0; i < sizeof(windows) / sizeof(windows[0]); i++) {
        gp_conv_request request = request_of(&windows[i], GP_CONV_FORWARD, how);
        bool tensor_cores;
        size_t workspace;

        request.bias = request.relu = true;
        if (!has_plan(&request, device, &tensor_cores, &workspace))
            GP_TEST_FAIL("%s: no plan of %u to %u channels with bias and ReLU", device, windows[i].inputs,
                         windows[i].outputs);
    }
}

TEST(convolution_with_bias_and_relu_is_one_plan)
{
    check_followed(&bf16, "h200");
    check_followed(&fp16, "h200");
    check_followed(&tf32, "h200");
    check_followed(&bf16, "a100");
    check_followed(&bf16, "b200");
}

/* Check that a compiled plan is stored in a file, from which the next process loads it quickly. */
static void check_kept(const gp_conv_request *request)
{
    char folder[] = "/tmp/gp_cuda_plans_XXXXXX", what[GP_COMPILED_WHAT_BYTES], command[80], *text;
    gp_compiled kept = { .directory = folder, .libraries = "those of a test" };
    gp_cudnn_conv *conv;
    size_t workspace[2], bytes;
    gp_error err;

    REQUIRE(mkdtemp(folder) != NULL);
    for (int i = 0; i < 2; i++) {
        REQUIRE_OK(gp_cudnn_conv_new(&conv, NULL, properties_read("h200"), &kept, request, NULL,
                                     &workspace[i], &err),
                   err);
        CHECK(gp_cudnn_conv_engine(conv)->compiled);
        CHECK_INT(i == 1, gp_cudnn_conv_engine(conv)->read);
        gp_cudnn_conv_describe(request, gp_cudnn_conv_engine(conv)->name, what);
        gp_cudnn_conv_free(conv);
    }
    CHECK_INT(workspace[0], workspace[1]);
    text = gp_compiled_read(&kept, what, &bytes);
    CHECK(text != NULL && strlen(text) <= bytes && text[0] == '{');
    gp_free(text);
    kept.libraries = "those of another test";
    CHECK(gp_compiled_read(&kept, what, &bytes) == NULL); /* other requests do not find it */
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    CHECK_INT(0, system(command));
}

/* These engines are compiled on request, which takes seconds each: one request per kind. */
TEST(fused_sums_moments_and_relu_gradients_are_one_compiled_plan)
{
    gp_conv_request sum = request_of(&windows[3], GP_CONV_FORWARD, &bf16),
                    mask = request_of(&windows[2], GP_CONV_DATA, &bf16),
                    moments = request_of(&windows[3], GP_CONV_FORWARD, &bf16);
    gp_engine engine;
    bool tensor_cores;
    size_t workspace;

    if (dlopen("libcuda.so", RTLD_LAZY) == NULL && dlopen("libcuda.so.1", RTLD_LAZY) == NULL)
        SKIP("cuDNN needs libcuda to compile; ctest cuda_plans_compiled provides a fake one");
    sum.bias = sum.added = sum.relu = true;
    mask.masked = true;
    moments.sums = true;
    CHECK(has_plan(&sum, "h200", &tensor_cores, &workspace));
    CHECK(has_plan(&mask, "h200", &tensor_cores, &workspace));
    check_kept(&moments);

    /* These engines are marked as compiled at run time, so autotuning tries them last. */
    CHECK_INT(1, gp_cudnn_conv_engines(NULL, properties_read("h200"), &sum, &engine, 1));
    CHECK(engine.compiled);
    sum.bias = sum.added = sum.relu = false;
    CHECK_INT(1, gp_cudnn_conv_engines(NULL, properties_read("h200"), &sum, &engine, 1));
    CHECK(!engine.compiled);
}

TEST(strict_float32_excludes_tensor_core_engines_and_tf32_uses_them)
{
    for (size_t i = 1; i < sizeof(windows) / sizeof(windows[0]); i++)
        for (int pass = 0; pass < 3; pass++) {
            gp_conv_request strict = request_of(&windows[i], (gp_conv_pass)pass, &f32),
                            loose = request_of(&windows[i], (gp_conv_pass)pass, &tf32);
            bool tensor_cores;
            size_t workspace;

            CHECK(has_plan(&strict, "h200", &tensor_cores, &workspace) && !tensor_cores);
            CHECK(has_plan(&loose, "h200", &tensor_cores, &workspace) && tensor_cores);
        }
}

/* Autotuning and the stored choices depend on this. */
TEST(engine_names_are_unique_and_identify_a_plan)
{
    enum { MOST = 12 };
    const gp_conv_request request = request_of(&windows[0], GP_CONV_FORWARD, &bf16);
    gp_engine engines[MOST], again[MOST];
    uint32_t count = gp_cudnn_conv_engines(NULL, properties_read("h200"), &request, engines, MOST), plans = 0;

    CHECK(count > 2);
    CHECK_INT(count, gp_cudnn_conv_engines(NULL, properties_read("h200"), &request, again, MOST));
    for (uint32_t i = 0; i < count; i++) {
        gp_cudnn_conv *conv;
        size_t workspace;
        gp_error err;

        CHECK_TEXT(engines[i].name, again[i].name);
        for (uint32_t k = 0; k < i; k++)
            CHECK(strcmp(engines[i].name, engines[k].name) != 0);
        if (engines[i].compiled || gp_cudnn_conv_new(&conv, NULL, properties_read("h200"), NULL, &request,
                                                     engines[i].name, &workspace, &err) != GP_OK)
            continue;
        CHECK_TEXT(engines[i].name, gp_cudnn_conv_engine(conv)->name);
        gp_cudnn_conv_free(conv);
        plans++;
    }
    CHECK(plans > 1);
}

TEST(configurations_of_one_engine_have_unique_names)
{
    enum { MOST = 48 };
    const gp_conv_request request = request_of(&windows[2], GP_CONV_FORWARD, &bf16);
    gp_engine engines[MOST];
    uint32_t count = gp_cudnn_conv_engines(NULL, properties_read("h200"), &request, engines, MOST),
             of_first = 0;

    for (uint32_t i = 0; i < count; i++) {
        CHECK_INT(engines[i].number, atoll(engines[i].name));
        of_first += engines[i].number == engines[0].number;
        for (uint32_t k = 0; k < i; k++)
            CHECK(strcmp(engines[i].name, engines[k].name) != 0);
    }
    if (count <= 20 || of_first < 8)
        GP_TEST_FAIL("%u configurations, %u of the first engine; expected more than 20, and at least 8",
                     count, of_first);
}

TEST(unknown_engine_has_no_plan)
{
    const gp_conv_request request = request_of(&windows[0], GP_CONV_FORWARD, &bf16);
    gp_cudnn_conv *conv;
    size_t workspace;
    gp_error err;

    CHECK_STATUS(GP_EUNSUPPORTED, gp_cudnn_conv_new(&conv, NULL, properties_read("h200"), NULL, &request,
                                                    "999-00000000", &workspace, &err));
}

/* Batch norm sums are deterministic; fp16 needs no compilation for them. */
TEST(fp16_convolution_with_moments_is_one_plan)
{
    for (size_t i = 1; i < sizeof(windows) / sizeof(windows[0]); i++) {
        gp_conv_request request = request_of(&windows[i], GP_CONV_FORWARD, &fp16);
        bool tensor_cores;
        size_t workspace;

        request.sums = true;
        if (!has_plan(&request, "h200", &tensor_cores, &workspace))
            GP_TEST_FAIL("no plan of %u to %u channels with moments", windows[i].inputs, windows[i].outputs);
    }
}

/* With 3 channels, cuDNN copies the whole input. */
TEST(input_with_eight_channels_needs_no_hidden_copy)
{
    gp_conv_request spread = request_of(&windows[0], GP_CONV_FORWARD, &bf16), narrow = spread;
    bool tensor_cores;
    size_t with = 0, without = 0;

    CHECK(has_plan(&spread, "h200", &tensor_cores, &with));
    narrow.x.pixel_stride = 3;
    narrow.x.sample = 3 * narrow.x.pixels;
    CHECK(has_plan(&narrow, "h200", &tensor_cores, &without));
    if (!(with < without / 10))
        GP_TEST_FAIL("%zu bytes of workspace with eight channels, %zu with three", with, without);
}

/* ---- products ---- */

static void check_product(const gp_product_request *request, cublasLtEpilogue_t epilogue,
                          cublasComputeType_t compute)
{
    gp_cublas_product *product;
    size_t workspace, bytes;
    cublasLtEpilogue_t is = 0;
    cublasComputeType_t computes = 0;
    int64_t row = 0;
    gp_error err;

    REQUIRE_OK(gp_cublas_product_new(&product, NULL, request, NULL, &workspace, &err), err);
    cublasLtMatmulDesc_t description = gp_cublas_product_description(product);

    CHECK_INT(
        CUBLAS_STATUS_SUCCESS,
        cublasLtMatmulDescGetAttribute(description, CUBLASLT_MATMUL_DESC_EPILOGUE, &is, sizeof(is), &bytes));
    CHECK_INT(epilogue, is);
    CHECK_INT(CUBLAS_STATUS_SUCCESS,
              cublasLtMatmulDescGetAttribute(description, CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, &computes,
                                             sizeof(computes), &bytes));
    CHECK_INT(compute, computes);
    if (request->mask_in || request->mask_out) {
        CHECK_INT(CUBLAS_STATUS_SUCCESS,
                  cublasLtMatmulDescGetAttribute(description, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &row,
                                                 sizeof(row), &bytes));
        CHECK(row >= request->m && row % 128 == 0 && (size_t)row == 8 * gp_product_mask_row(request->m));
    }
    gp_cublas_product_free(product);
}

TEST(product_descriptions_match_the_request)
{
    gp_product_request r = { .n = 256, .m = 1000, .k = 2048, .transpose_b = true };

    check_product(&r, CUBLASLT_EPILOGUE_DEFAULT, CUBLAS_COMPUTE_32F);
    r.tf32 = true;
    check_product(&r, CUBLASLT_EPILOGUE_DEFAULT, CUBLAS_COMPUTE_32F_FAST_TF32);
    r.narrow_a = r.narrow_b = r.narrow_out = GP_NARROW_F16;
    r.bias = true;
    check_product(&r, CUBLASLT_EPILOGUE_BIAS, CUBLAS_COMPUTE_32F);
    r.relu = true;
    check_product(&r, CUBLASLT_EPILOGUE_RELU_BIAS, CUBLAS_COMPUTE_32F);
    r.mask_out = true;
    check_product(&r, CUBLASLT_EPILOGUE_RELU_AUX_BIAS, CUBLAS_COMPUTE_32F);
    r.bias = false;
    check_product(&r, CUBLASLT_EPILOGUE_RELU_AUX, CUBLAS_COMPUTE_32F);
    r = (gp_product_request){ .n = 256, .m = 4096, .k = 1000, .mask_in = true };
    check_product(&r, CUBLASLT_EPILOGUE_DRELU, CUBLAS_COMPUTE_32F);
    r = (gp_product_request){ .n = 1000, .m = 4096, .k = 256, .transpose_a = true, .sums = true };
    check_product(&r, CUBLASLT_EPILOGUE_BGRADB, CUBLAS_COMPUTE_32F);
}

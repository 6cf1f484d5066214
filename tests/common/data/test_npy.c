/* NumPy array files. The tests create all files. */
#include "tests/gp_test.h"

#include <unistd.h>

#include "common/data/format/npy.h"
#include "common/data/store/store.h"
#include "tests/common/data/folder.h"

/* Create a file like numpy.save(), with the header padded by spaces to a multiple of 64 bytes. */
static size_t npy_make(uint8_t *out, int version, const char *header, const void *data, size_t bytes)
{
    size_t before = version == 1 ? 10 : 12, length = strlen(header) + 1,
           total = (before + length + 63) / 64 * 64;

    memcpy(out, "\x93NUMPY", 6);
    out[6] = (uint8_t)version;
    out[7] = 0;
    memset(out + 8, 0, 4);
    out[8] = (uint8_t)(total - before);
    out[9] = (uint8_t)((total - before) >> 8);
    memset(out + before, ' ', total - before);
    memcpy(out + before, header, length - 1);
    out[total - 1] = '\n';
    memcpy(out + total, data, bytes);
    return total + bytes;
}

static void npy_put(const char *name, const char *descr, const char *shape, const void *data, size_t bytes)
{
    uint8_t file[8192];
    char header[200];
    FILE *out = fopen(in_folder(name), "w");
    size_t length;

    snprintf(header, sizeof(header), "{'descr': '%s', 'fortran_order': False, 'shape': %s, }", descr, shape);
    length = npy_make(file, 1, header, data, bytes);
    if (out == NULL || fwrite(file, 1, length, out) != length || fclose(out) != 0)
        abort();
}

static gp_status parse(int version, const char *header, size_t bytes, gp_npy *npy, gp_error *err)
{
    static _Alignas(64) uint8_t file[4096];
    static const uint8_t zeros[1024];

    return gp_npy_parse(npy, file, npy_make(file, version, header, zeros, bytes), "x.npy", err);
}

TEST(all_header_versions_are_read_and_others_rejected)
{
    gp_npy npy;
    gp_error err;

    for (int version = 1; version <= 3; version++) {
        REQUIRE_OK(
            parse(version, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3, 4), }", 96, &npy, &err),
            err);
        CHECK_INT(GP_F32, npy.dtype);
        CHECK_INT(3, npy.shape.rank);
        CHECK_INT(4, npy.shape.dim[2]);
    }
    REQUIRE_OK(parse(1, "{\"shape\":(5,),\"fortran_order\":True,\"descr\":\"|u1\"}", 5, &npy, &err), err);
    REQUIRE_OK(parse(1, "{'descr': '<i8', 'fortran_order': False, 'shape': (), }", 8, &npy, &err), err);
    CHECK_INT(0, npy.shape.rank);
    CHECK_STATUS(GP_EUNSUPPORTED,
                 parse(1, "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }", 24, &npy, &err));
    CHECK_CONTAINS(err.message, "ascontiguousarray");
    CHECK_STATUS(GP_EUNSUPPORTED,
                 parse(1, "{'descr': '>f4', 'fortran_order': False, 'shape': (2, 3), }", 24, &npy, &err));
    CHECK_CONTAINS(err.message, "astype");
    CHECK_STATUS(GP_ECORRUPT,
                 parse(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", 20, &npy, &err));
    CHECK_CONTAINS(err.message, "needs 24 bytes");
    CHECK_STATUS(GP_ELIMIT,
                 parse(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999, 99999999), }", 24,
                       &npy, &err));
    CHECK_STATUS(GP_ECORRUPT, parse(1, "{'descr': '<f4', 'shape': (2, 3), }", 24, &npy, &err));
    CHECK_STATUS(GP_ECORRUPT,
                 parse(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, -3), }", 24, &npy, &err));
    CHECK_STATUS(GP_ECORRUPT, gp_npy_parse(&npy, "\x93NUMP!", 6, "x.npy", &err));
}

TEST(arrays_with_any_channel_order_become_samples)
{
    uint8_t hwc[2 * 2 * 2 * 3];
    float chw[2 * 3 * 2 * 2], sample[12];
    double values[2 * 4];
    int64_t classes[2] = { 4, -1 };
    uint8_t bytes[12];
    int32_t label[1];
    gp_store *store;
    gp_error err;

    folder_make();
    for (int i = 0; i < 24; i++) {
        hwc[i] = (uint8_t)i;
        chw[i] = (float)i / 2;
    }
    for (int i = 0; i < 8; i++)
        values[i] = i * 0.25;
    npy_put("x.npy", "|u1", "(2, 2, 2, 3)", hwc, sizeof(hwc));
    CHECK_STATUS(GP_ENOENT, gp_store_open(&store, in_folder("x.npy"), GP_DATA_TRAIN, &err));
    CHECK_CONTAINS(err.message, "y.npy");
    /* prediction needs no targets */
    REQUIRE_OK(gp_store_open(&store, in_folder("x.npy"), GP_DATA_GIVEN, &err), err);
    REQUIRE_OK(gp_store_read(store, &(uint32_t){ 1 }, 1, bytes, label, &err), err);
    CHECK_INT(-1, label[0]);
    CHECK_INT(12, bytes[0]);
    CHECK_INT(15, bytes[1]);
    CHECK_INT(13, bytes[4]);
    gp_store_close(store);
    npy_put("y.npy", "<i8", "(2, 1)", classes, sizeof(classes));
    REQUIRE_OK(gp_store_open(&store, in_folder(""), GP_DATA_TRAIN, &err), err);
    CHECK_TEXT("npy", gp_store_get_info(store)->kind);
    CHECK_INT(5, gp_store_get_info(store)->class_count);
    REQUIRE_OK(gp_store_read(store, &(uint32_t){ 0 }, 1, bytes, label, &err), err);
    CHECK_INT(4, label[0]);
    gp_store_close(store);
    npy_put("train-x.npy", "<f4", "(2, 3, 2, 2)", chw, sizeof(chw));
    npy_put("train-y.npy", "<i8", "(2,)", (const int64_t[]){ 0, 1 }, 16);
    npy_put("test-x.npy", "<f4", "(2, 3, 2, 2)", chw, sizeof(chw));
    npy_put("test-y.npy", "<i4", "(2,)", (const int32_t[]){ 2, 1 }, 8);
    for (int role = GP_DATA_TRAIN; role <= GP_DATA_GIVEN; role++) {
        REQUIRE_OK(gp_store_open(&store, in_folder(""), (gp_data_role)role, &err), err);
        CHECK_INT(3, gp_store_get_info(store)->class_count); /* counted over both parts */
        REQUIRE_OK(gp_store_read(store, &(uint32_t){ 1 }, 1, sample, label, &err), err);
        CHECK_NEAR(6.5, sample[1], 0);
        CHECK_INT(1, label[0]);
        gp_store_close(store);
    }
    npy_put("f-x.npy", "<f8", "(2, 4)", values, sizeof(values));
    npy_put("f-y.npy", "<f8", "(2, 4)", values, sizeof(values));
    REQUIRE_OK(gp_store_open(&store, in_folder("f-x.npy"), GP_DATA_TRAIN, &err), err);
    CHECK_INT(4, gp_store_get_info(store)->width);
    CHECK_INT(GP_F32, gp_store_get_info(store)->targets[0].dtype);
    REQUIRE_OK(gp_store_read(store, &(uint32_t){ 1 }, 1, sample, sample + 4, &err), err);
    CHECK_NEAR(1.75, sample[3], 0);
    CHECK_NEAR(1.75, sample[7], 0);
    gp_store_close(store);
    npy_put("f-y.npy", "<f8", "(1, 4)", values, 32);
    CHECK_STATUS(GP_ECORRUPT, gp_store_open(&store, in_folder("f-x.npy"), GP_DATA_TRAIN, &err));
    CHECK_CONTAINS(err.message, "but there are 2 samples");
    npy_put("f-y.npy", "<i4", "(2,)", (const int32_t[]){ 0, -7 }, 8);
    CHECK_STATUS(GP_ECORRUPT, gp_store_open(&store, in_folder("f-x.npy"), GP_DATA_TRAIN, &err));
    CHECK_CONTAINS(err.message, "element 1 is -7");
}

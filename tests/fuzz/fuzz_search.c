/* fuzz_search.c: spaces and points of searches. The input is a space, then after a byte 0 words or
 * JSON with the values of a point. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory/alloc.h"
#include "common/search/space.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void promise(bool kept)
{
    if (!kept)
        abort();
}

/* Check that a point survives a round trip through its text. */
static void round_trip(const gp_space *space, const double *point)
{
    double again[GP_SEARCH_PARAMETERS_MAX];
    char *text;

    promise(gp_space_point_text(space, point, &text, NULL) == GP_OK);
    promise(gp_space_point_parse(space, text, again, NULL) == GP_OK);
    promise(memcmp(point, again, space->count * sizeof(*point)) == 0);
    gp_free(text);
}

/* Convert coordinates to a point and back: a point of the space, whose coordinates lead to it. */
static void convert(const gp_space *space, double coordinate)
{
    double unit[GP_SEARCH_PARAMETERS_MAX], point[GP_SEARCH_PARAMETERS_MAX];

    for (uint32_t i = 0; i < space->count; i++)
        unit[i] = coordinate;
    gp_space_decode(space, unit, point);
    round_trip(space, point);
    gp_space_encode(space, point, unit);
    for (uint32_t i = 0; i < space->count; i++)
        promise(unit[i] >= 0.0 && unit[i] <= 1.0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const int64_t live = gp_alloc_get_stats().live;
    double point[GP_SEARCH_PARAMETERS_MAX];
    gp_error err = { GP_OK, "" };
    gp_space *space;
    char *text = gp_malloc(bytes + 2);

    if (text == NULL)
        return 0;
    if (bytes > 0)
        memcpy(text, data, bytes);
    text[bytes] = text[bytes + 1] = '\0';
    if (gp_space_parse(&space, text, NULL, NULL, &err) != GP_OK) {
        promise(err.message[0] != '\0');
    } else {
        promise(space->count > 0 && space->count <= GP_SEARCH_PARAMETERS_MAX);
        promise(gp_space_points(space, 100) >= 1);
        convert(space, 0.0);
        convert(space, 0.37);
        convert(space, 1.0);
        err.message[0] = '\0';
        if (gp_space_point_parse(space, text + strlen(text) + 1, point, &err) == GP_OK)
            round_trip(space, point);
        else
            promise(err.message[0] != '\0');
        gp_space_free(space);
    }
    gp_free(text);
    promise(gp_alloc_get_stats().live == live);
    return 0;
}

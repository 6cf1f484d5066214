/* Unit tests for resources of workers and needs. */
#include "common/base/text/resources.h"
#include "tests/gp_test.h"

static gp_resource_table parsed(const char *text)
{
    gp_resource_table table = { .count = 99 };
    gp_error err = { .message = "" };

    CHECK_STATUS(GP_OK, gp_resources_parse(&table, text, &err));
    return table;
}

static void check_refused(gp_status status, const char *words, const char *text)
{
    gp_resource_table table = parsed("kept=7"), before = table;
    gp_error err = { .message = "" };

    CHECK_STATUS(status, gp_resources_parse(&table, text, &err));
    CHECK_CONTAINS(err.message, words);
    CHECK(memcmp(&table, &before, sizeof(table)) == 0);
}

static bool meets(const char *has, const char *needs)
{
    gp_resource_table a = parsed(has), b = parsed(needs);

    return gp_resources_meet(&a, &b);
}

TEST(text_of_a_table_is_sorted_and_complete)
{
    gp_resource_table table = parsed("license,gpu_memory=80,_a.b-c=9007199254740992,zero=0");
    gp_resource_table same = parsed("zero=0,_a.b-c=9007199254740992,gpu_memory=080,license=1");
    char text[GP_RESOURCES_BYTES];

    CHECK_TEXT("_a.b-c=9007199254740992,gpu_memory=80,license=1,zero=0", gp_resources_text(&table, text));
    CHECK(memcmp(&table, &same, sizeof(table)) == 0);
    table = parsed(text);
    CHECK(memcmp(&table, &same, sizeof(table)) == 0);
    table = parsed("");
    CHECK_INT(0, table.count);
    CHECK_TEXT("", gp_resources_text(&table, text));
    table = parsed(NULL);
    CHECK_INT(0, table.count);
}

TEST(malformed_resources_are_refused)
{
    static const char *const malformed[] = { ",",
                                             "a,",
                                             ",a",
                                             "a,,b",
                                             "a=",
                                             "a=-1",
                                             "a=1.5",
                                             "a=1e3",
                                             "a b",
                                             "1a",
                                             "=1",
                                             "a=1=2",
                                             "a=0x10",
                                             "a:1",
                                             "a= 1",
                                             "-a",
                                             ".a",
                                             "\xc3\xa4",
                                             "a\xff",
                                             "a=9007199254740993",
                                             "a=18446744073709551617" };

    for (size_t i = 0; i < sizeof(malformed) / sizeof(malformed[0]); i++)
        check_refused(GP_EINVAL, "malformed resource", malformed[i]);
    check_refused(GP_EINVAL, "'a' is given twice", "a=1,b,a=1");
    check_refused(GP_EINVAL, "the name 'none'", "none");
    check_refused(GP_EINVAL, "at most 63",
                  "a123456789a123456789a123456789a123456789a123456789a123456789a123");
    check_refused(GP_ELIMIT, "at most 16 names", "a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q");
    CHECK_INT(16, parsed("a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p").count);
    CHECK_INT(1, parsed("a123456789a123456789a123456789a123456789a123456789a123456789a12").count);
}

TEST(text_above_the_ceiling_is_refused)
{
    char text[16 * 64] = "";

    /* eight names of 61 characters and "=1", with commas: 8 * 64 - 1 = 511 characters */
    for (int i = 0; i < 8; i++)
        sprintf(text + strlen(text), "%s%c%060d=1", i == 0 ? "" : ",", 'a' + i, 0);
    CHECK_INT(8, parsed(text).count);
    text[strlen(text) - 1] = '\0';
    strcat(text, "12");
    check_refused(GP_ELIMIT, "at most 511 characters", text);
}

TEST(worker_meets_needs_up_to_its_amounts)
{
    CHECK(meets("", ""));
    CHECK(meets("a=1", ""));
    CHECK(meets("a=2,b,c=3", "a=2,c=2"));
    CHECK(meets("", "a=0"));
    CHECK(!meets("", "a"));
    CHECK(!meets("a=1", "a=2"));
    CHECK(!meets("a=1,c=1", "a=1,b=1,c=1"));
    CHECK(!meets("b=9", "a"));
    CHECK(!meets("b=9", "c"));
}

TEST(merged_table_has_the_larger_amounts)
{
    gp_resource_table table = parsed("a=1,b=5"), more = parsed("a=3,b=2,c"), full;
    char text[GP_RESOURCES_BYTES];

    CHECK_STATUS(GP_OK, gp_resources_merge(&table, &more, NULL));
    CHECK_TEXT("a=3,b=5,c=1", gp_resources_text(&table, text));
    full = parsed("d,e,f,g,h,i,j,k,l,m,n,o,p,q");
    CHECK_STATUS(GP_ELIMIT, gp_resources_merge(&full, &more, NULL));
}

static void check_assigned(const char *setting, const char *first, const char *second, const char *third)
{
    struct {
        gp_resource_table table;
        int other;
    } workers[3] = { { parsed("old"), 5 }, { parsed("old"), 6 }, { parsed("old"), 7 } };
    const char *const expected[] = { first, second, third };
    char text[GP_RESOURCES_BYTES];
    gp_error err = { .message = "" };

    CHECK_STATUS(GP_OK, gp_resources_assign(&workers[0].table, sizeof(workers[0]), 3, setting, true, &err));
    for (int w = 0; w < 3; w++) {
        CHECK_TEXT(expected[w], gp_resources_text(&workers[w].table, text));
        CHECK_INT(5 + w, workers[w].other);
    }
}

TEST(setting_of_a_pool_assigns_resources_to_workers)
{
    check_assigned(NULL, "", "", "");
    check_assigned("none", "", "", "");
    check_assigned("a=1,b", "a=1,b=1", "a=1,b=1", "a=1,b=1");
    check_assigned("2:a=1", "", "a=1", "");
    check_assigned("a=1 1,3:a=5,b=2\n2-3:c ", "a=5,b=2", "a=1,c=1", "a=5,b=2,c=1");
}

static void check_unassigned(gp_status status, const char *words, const char *setting, bool strict)
{
    gp_resource_table tables[2] = { parsed("kept"), parsed("kept") };
    char text[GP_RESOURCES_BYTES];
    gp_error err = { .message = "" };

    CHECK_STATUS(status, gp_resources_assign(tables, sizeof(tables[0]), 2, setting, strict, &err));
    CHECK_CONTAINS(err.message, words);
    CHECK_TEXT("kept=1", gp_resources_text(&tables[1], text));
}

TEST(malformed_setting_of_a_pool_is_refused)
{
    static const char *const lists[] = { ":a", "0:a", "2-1:a", "1,:a", "x:a", "1-:a", "-2:a", "1--2:a" };
    char text[GP_RESOURCE_SETTING_BYTES + 8] = "";

    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
        check_unassigned(GP_EINVAL, "malformed worker list", lists[i], true);
    check_unassigned(GP_EINVAL, "worker 3 has resources, but the pool has 2", "a 1,3:b", true);
    check_unassigned(GP_EINVAL, "malformed resource '1a'", "9:1a", false);
    check_unassigned(GP_EINVAL, "malformed resource", "a:1:b", true);
    check_unassigned(GP_ELIMIT, "at most 16 names", "a,b,c,d,e,f,g,h i,j,k,l,m,n,o,p,q", true);
    memset(text, ' ', GP_RESOURCE_SETTING_BYTES);
    check_unassigned(GP_ELIMIT, "the maximum is 1023", text, true);
}

TEST(setting_may_name_workers_that_the_pool_does_not_have_yet)
{
    gp_resource_table tables[2] = { 0 };
    char text[GP_RESOURCES_BYTES];

    CHECK_STATUS(GP_OK, gp_resources_assign(tables, sizeof(tables[0]), 2, "2-4:a=3", false, NULL));
    CHECK_TEXT("a=3", gp_resources_text(&tables[1], text));
    CHECK_INT(0, tables[0].count);
    CHECK_STATUS(GP_EINVAL, gp_resources_assign(tables, sizeof(tables[0]), 2, "257:a", false, NULL));
}

TEST(description_groups_workers_and_fits)
{
    static const char *const texts[] = { "a=1", "a=1", "", "b=2,c=3" };
    char text[80], small[20];

    CHECK_TEXT("workers 1-2: a=1; worker 3: none; worker 4: b=2,c=3",
               gp_resources_describe(text, sizeof(text), texts, 4));
    CHECK_TEXT("workers 1-2: a=1...", gp_resources_describe(small, sizeof(small), texts, 4));
    CHECK_TEXT("", gp_resources_describe(text, sizeof(text), texts, 0));
}

/* An ordered set without allocation: a treap (Seidel and Aragon, "Randomized search trees", 1996).
 * Links are members of the items; random priorities keep the expected depth logarithmic whatever
 * keys an outsider chooses. All functions are loops, so depth costs no stack. */
#include "cache_internal.h"

treap_link *treap_seek(treap_link *root, const void *key, treap_order *order, treap_link **below,
                       treap_link **above) {
    *below = *above = NULL;
    while (root) {
        int side = order(key, root);
        if (side == 0) return root;
        if (side < 0) {
            *above = root;
            root = root->left;
        } else {
            *below = root;
            root = root->right;
        }
    }
    return NULL;
}

void treap_insert(treap_link **root, treap_link *item, const void *key, treap_order *order) {
    treap_link **at = root;
    while (*at && (*at)->priority >= item->priority)
        at = order(key, *at) < 0 ? &(*at)->left : &(*at)->right;

    /* The item takes this place; what stood here is split into its two sides. */
    treap_link *rest = *at, **left = &item->left, **right = &item->right;
    *at = item;
    while (rest) {
        if (order(key, rest) < 0) {
            *right = rest;
            right = &rest->left;
            rest = rest->left;
        } else {
            *left = rest;
            left = &rest->right;
            rest = rest->right;
        }
    }
    *left = *right = NULL;
}

void treap_remove(treap_link **root, treap_link *item, const void *key, treap_order *order) {
    treap_link **at = root;
    while (*at != item) at = order(key, *at) < 0 ? &(*at)->left : &(*at)->right;

    /* Its two sides are merged in its place. */
    treap_link *left = item->left, *right = item->right;
    while (left && right) {
        if (left->priority >= right->priority) {
            *at = left;
            at = &left->right;
            left = *at;
        } else {
            *at = right;
            at = &right->left;
            right = *at;
        }
    }
    *at = left ? left : right;
}

treap_link *treap_first(treap_link *root) {
    while (root && root->left) root = root->left;
    return root;
}

treap_link *treap_above(treap_link *root, const void *key, treap_order *order) {
    treap_link *found = NULL;
    while (root) {
        bool above = order(key, root) < 0;
        if (above) found = root;
        root = above ? root->left : root->right;
    }
    return found;
}

treap_link *treap_below(treap_link *root, const void *key, treap_order *order) {
    treap_link *found = NULL;
    while (root) {
        bool below = order(key, root) > 0;
        if (below) found = root;
        root = below ? root->right : root->left;
    }
    return found;
}

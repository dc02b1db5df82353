"""The ten calls with httpx, and with the models that datamodel-codegen makes, in the module tally_models."""

import os

import httpx
from tally_models import (
    Batch, BatchResults, BatchVote, HeldVote, Item, Items, NewItem, NewPoll, NewVote, Poll, Problem, Selection,
    SelectionChange, TakenVote, Vote, VoteChange,
)

client = httpx.Client(base_url=os.environ["SERVER_BASE"])
key = "made-by-datamodel-codegen"


def ask(method, path, kind, status, body=None):
    sent = None if body is None else body.model_dump(mode="json", exclude_none=True)
    answer = client.request(method, path, json=sent)
    assert answer.status_code == status, (method, path, answer.status_code, answer.text)
    return kind.model_validate(answer.json())


item = ask("POST", "/v1/items", Item, 201, NewItem(name="A post", key=key))
assert item.id == ask("POST", "/v1/items", Item, 200, NewItem(name="A post", key=key)).id
# Numbers and texts are plain, not wrapped.
assert type(item.id) is int and type(item.vote_count) is int and type(item.key) is str, item
taken = ask("POST", "/v1/items", Problem, 409, NewItem(name="Another", key=key))
assert (taken.type, taken.status) == ("/problems/key-taken", 409), taken

votes = f"/v1/items/{item.id}/votes"
vote = ask("POST", f"/v1/items/key:{key}/votes", Vote, 201, NewVote(voter_id="ada"))
assert (vote.item_id, vote.vote_count, vote.value) == (item.id, 1, 1), vote
assert ask("POST", votes, Vote, 200, NewVote(voter_id="ada")).repeated is True
assert ask("PUT", f"{votes}/ada", Vote, 200, VoteChange(value=-1)).vote_count == -1
assert ask("GET", f"{votes}/ada", HeldVote, 200).value == -1
assert ask("DELETE", f"{votes}/ada", Vote, 200).value == 0
none = ask("GET", f"{votes}/ada", Problem, 404)
assert none.type == "/problems/no-vote" and "holds no vote" in none.detail, none

listed = ask("GET", f"/v1/items?ids=key:{key}", Items, 200)
assert [one.id for one in listed.items] == [item.id] and listed.next_after is None

batch = Batch(votes=[BatchVote(item_id=item.id, voter_id="bob"), BatchVote(item_id="key:nothing")])
done, refused = (getattr(one, "root", one) for one in ask("POST", "/v1/votes", BatchResults, 200, batch).results)
assert type(done) is TakenVote and (done.status, done.vote_count) == (201, 1), done
assert type(refused) is Problem and (refused.type, refused.status) == ("/problems/unknown-item", 404), refused

poll = ask("POST", "/v1/polls", Poll, 201, NewPoll(title="Lunch?", choices=["Soup", "Salad"]))
chosen = poll.choices[1].item_id
selection = ask("PUT", f"/v1/polls/{poll.id}/votes/ada", Selection, 200, SelectionChange(items=[chosen]))
assert selection.items == [chosen], selection

unknown = ask("GET", "/v1/items/999999", Problem, 404)
assert unknown.type == "/problems/unknown-item", unknown
print("datamodel-codegen: the calls do what they say")

"""A session with django: each step is a function, whose docstring is its title in docs/clients.md."""

import io

import django
from django.conf import settings
from steps import DATABASE, HOST, PORT, USER, run

settings.configure(
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": DATABASE,
            "USER": USER,
            "HOST": HOST,
            "PORT": PORT,
        }
    },
    INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth"],
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    USE_TZ=True,
)
django.setup()

from django.core.management import call_command  # noqa: E402
from django.db import connection, models, transaction  # noqa: E402


class Note(models.Model):
    """Its key is chosen by the application."""

    slug = models.CharField(max_length=40, primary_key=True)
    text = models.TextField()
    stars = models.IntegerField(null=True)
    at = models.DateTimeField(auto_now_add=True)

    class Meta:
        app_label = "notes"
        db_table = "dj_notes"


def create_model():
    """Schema editor: `create_model`"""
    with connection.schema_editor() as editor:
        editor.create_model(Note)


def queries():
    """Create, get, filter, aggregate, update, delete"""
    for number in range(5):
        Note(slug=f"n{number}", text="x" * number, stars=number).save(force_insert=True)
    Note.objects.bulk_create([Note(slug=f"b{number}", text="bulk") for number in range(300)])
    note = Note.objects.get(slug="n3")
    note.text = "changed"
    note.save()
    assert Note.objects.filter(text__icontains="CHANGED").count() == 1
    assert Note.objects.aggregate(models.Sum("stars"))["stars__sum"] == 10
    assert Note.objects.filter(slug__startswith="b").order_by("-slug")[:3].count() == 3
    assert Note.objects.filter(stars__gt=2).update(stars=models.F("stars") + 1) == 2
    assert Note.objects.filter(slug="n0").delete()[0] == 1


def atomic():
    """`atomic`, nested, with `select_for_update`"""
    with transaction.atomic():
        Note.objects.select_for_update().get(slug="n1")
        try:
            with transaction.atomic():
                Note.objects.filter(slug="n1").delete()
                raise ValueError
        except ValueError:
            pass
    assert Note.objects.filter(slug="n1").exists()


def iterator():
    """`iterator` (a server cursor WITH HOLD)"""
    assert len(list(Note.objects.iterator(chunk_size=100))) == 304
    with transaction.atomic():
        assert len(list(Note.objects.iterator(chunk_size=100))) == 304


def introspection():
    """`inspectdb`"""
    output = io.StringIO()
    call_command("inspectdb", "dj_notes", stdout=output)
    assert "class DjNotes" in output.getvalue(), output.getvalue()[-500:]
    assert "slug = models.CharField(primary_key=True, max_length=40)" in output.getvalue(), output.getvalue()


def migrate():
    """`migrate` of contenttypes and auth"""
    call_command("migrate", verbosity=0)
    from django.contrib.auth.models import User

    user = User.objects.create_user("jane", password="secret")
    assert User.objects.get(pk=user.pk).check_password("secret")


run(create_model, queries, atomic, iterator, introspection, migrate)
